//! The HTTP client of Endstop: pooled connections with proxies, private certificate authorities
//! and timeouts, over `hyper`.
#![cfg_attr(docsrs, feature(doc_cfg))]
