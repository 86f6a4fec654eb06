//! Stands in for `resign.rs` in a build without the feature `bedrock`.

use super::passing::NOT_BUILT;
use crate::clients::AwsKeys;
use crate::proxy::RequestHead;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use std::convert::Infallible;
use std::marker::PhantomData;

/// No request, because none can be signed.
pub(super) struct Signed<'a>(Infallible, PhantomData<&'a RequestHead>);

impl<'a> Signed<'a> {
    pub(super) fn check(
        _: &'a AwsKeys,
        _: &'a RequestHead,
        _: Option<&Bytes>,
    ) -> Result<Signed<'a>, String> {
        Err(NOT_BUILT.to_owned())
    }

    pub(super) fn headers(
        &self,
        _: &Uri,
        _: Option<&Bytes>,
    ) -> Result<Vec<(HeaderName, Option<HeaderValue>)>, String> {
        match self.0 {}
    }
}
