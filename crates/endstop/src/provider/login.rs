//! Access tokens that are fetched before a call: Google's application default credentials.
//!
//! ```text
//! let keys = Keys::new(&login, "Google Vertex AI")?;
//! let authorization = keys.header().await?; // Bearer …, cached until it expires
//! ```
//!
//! They come from the file that a variable names (the key of a service account), else from the file
//! that `gcloud auth application-default login` wrote, else from the machine's own service account.

#[cfg(feature = "google-login")]
pub(crate) use fetched::Keys;
#[cfg(not(feature = "google-login"))]
pub(crate) use unknown::Keys;

#[cfg(feature = "google-login")]
mod fetched {
    use crate::provider::http::HttpError;
    use crate::provider::network::web_address;
    use endstop_core::{ErrorClass, ModelError};
    use endstop_wire::catalog::providers::LoginVars;
    use endstop_wire::endpoint::Login;
    use gcp_auth::{
        ConfigDefaultCredentials, CustomServiceAccount, Error, MetadataServiceAccount,
        TokenProvider,
    };
    use http::header::HeaderValue;
    use serde::Deserialize;
    use std::fmt;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::OnceCell;
    use tokio::task::spawn_blocking;
    use tokio::time::timeout;

    /// Time limit for the metadata server of the machine. It is on the local network, or absent.
    const MACHINE_TIMEOUT: Duration = Duration::from_secs(5);

    /// Fetches access tokens and caches each until it expires.
    pub(crate) struct Keys {
        login: Login,
        provider: &'static str,
        source: OnceCell<Arc<dyn TokenProvider>>,
    }

    impl fmt::Debug for Keys {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Keys").field("login", &self.login).finish_non_exhaustive()
        }
    }

    impl Keys {
        #[expect(clippy::unnecessary_wraps, reason = "without the feature it fails")]
        pub(crate) fn new(login: &Login, provider: &'static str) -> Result<Keys, HttpError> {
            Ok(Keys { login: login.clone(), provider, source: OnceCell::new() })
        }

        /// Returns the value of the `authorization` header.
        ///
        /// # Errors
        /// There are no credentials, or no token can be obtained with them. The message does not
        /// contain them.
        pub(crate) async fn header(&self) -> Result<HeaderValue, ModelError> {
            self.fetch().await.map_err(|problem| {
                let LoginVars { file, command, .. } = self.login.vars;
                let message = format!(
                    "no key for {}: {problem}; run `{command}`, or set {file} to the file of a service account",
                    self.provider
                );
                ModelError::new(ErrorClass::Authentication, message)
            })
        }

        async fn fetch(&self) -> Result<HeaderValue, String> {
            // A failed lookup is not cached, so a login during the run takes effect at the next
            // call.
            let source = self.source.get_or_try_init(|| source(&self.login)).await?;
            let token = source.token(&[self.login.vars.scope]).await.map_err(|e| words(&e))?;
            let mut header = HeaderValue::from_str(&format!("Bearer {}", token.as_str()))
                .map_err(|_| "the fetched token is not valid in an HTTP header".to_owned())?;
            header.set_sensitive(true);
            Ok(header)
        }
    }

    /// Finds the source of access tokens.
    async fn source(login: &Login) -> Result<Arc<dyn TokenProvider>, String> {
        if let Some(file) = login.file.clone() {
            let variable = login.vars.file;
            let read = spawn_blocking(move || {
                account(&file).map_err(|problem| format!("{variable} is `{file}`: {problem}"))
            });
            let account = read.await.map_err(|error| error.to_string())??;
            return Ok(Arc::new(account));
        }
        match ConfigDefaultCredentials::new().await {
            // A missing file means that the user has not logged in, and the next source is tried. A
            // broken file is an error, because the next source could be another account.
            Ok(found) => return Ok(Arc::new(found)),
            Err(Error::Io(_, error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("invalid credentials of gcloud: {}", words(&error))),
        }
        match timeout(MACHINE_TIMEOUT, MetadataServiceAccount::new()).await {
            Ok(Ok(found)) => Ok(Arc::new(found)),
            // Outside of Google's cloud, details about its metadata server would only confuse.
            Ok(Err(_)) | Err(_) => Err("no application default credentials found".to_owned()),
        }
    }

    /// The fields of a credentials file that are checked before it is used.
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "type")]
        kind: String,
        token_uri: Option<String>,
    }

    /// Reads a service account from a file.
    fn account(file: &str) -> Result<CustomServiceAccount, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let head: Head =
            serde_json::from_str(&text).map_err(|e| place("not a credentials file", &e))?;
        if head.kind != "service_account" {
            let kind = endstop_wire::redact::secrets_out(&head.kind);
            return Err(format!("unsupported `type` `{kind}`: expected `service_account`"));
        }
        // An invalid address must not reach a request, whose error could quote it.
        let address = head.token_uri.unwrap_or_default();
        if !web_address(&address).is_ok_and(|url| url.as_str() == address) {
            return Err("invalid `token_uri`: expected an http or https URL".to_owned());
        }
        CustomServiceAccount::from_json(&text).map_err(|error| words(&error))
    }

    /// Describes an error without the parsed data, which may be secret.
    fn words(error: &Error) -> String {
        match error {
            Error::Json(what, error) => place(what, error),
            Error::Other(what, _) => (*what).to_owned(),
            other => other.to_string(),
        }
    }

    fn place(what: &str, error: &serde_json::Error) -> String {
        format!("{what} (line {}, column {})", error.line(), error.column())
    }
}

#[cfg(not(feature = "google-login"))]
mod unknown {
    use crate::provider::http::HttpError;
    use endstop_core::ModelError;
    use endstop_wire::endpoint::Login;
    use http::header::HeaderValue;

    /// No tokens, because the feature is disabled.
    #[derive(Debug)]
    pub(crate) enum Keys {}

    impl Keys {
        pub(crate) fn new(_: &Login, provider: &'static str) -> Result<Keys, HttpError> {
            Err(HttpError::Unsupported {
                provider: provider.to_owned(),
                what: "application default credentials",
                feature: "google-login",
            })
        }

        #[expect(clippy::unused_async, reason = "as with the feature")]
        pub(crate) async fn header(&self) -> Result<HeaderValue, ModelError> {
            match *self {}
        }
    }
}
