//! Keys that are fetched before a call: Google's application default credentials.
//!
//! ```text
//! let keys = Keys::new(&login, "Google Vertex AI")?;
//! let authorization = keys.header().await?; // Bearer …, kept until it ends
//! ```
//!
//! They come from the file that a variable names (the key of a service account), else from what
//! `gcloud auth application-default login` left on the disk, else from the machine's own account.

#[cfg(feature = "google-login")]
pub(super) use fetched::Keys;
#[cfg(not(feature = "google-login"))]
pub(super) use unknown::Keys;

#[cfg(feature = "google-login")]
mod fetched {
    use crate::provider::http::web_address;
    use endstop_core::{ErrorClass, ModelError};
    use endstop_wire::catalog::providers::LoginVars;
    use endstop_wire::endpoint::Login;
    use gcp_auth::{
        ConfigDefaultCredentials, CustomServiceAccount, Error, MetadataServiceAccount,
        TokenProvider,
    };
    use reqwest::header::HeaderValue;
    use serde::Deserialize;
    use std::fmt;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::OnceCell;
    use tokio::task::spawn_blocking;
    use tokio::time::timeout;

    /// How long the machine's own account may take to answer: it is next door, or there is none.
    const MACHINE_TIMEOUT: Duration = Duration::from_secs(5);

    /// Fetches keys, and keeps each until it ends.
    pub(in crate::provider) struct Keys {
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
        pub(in crate::provider) fn new(
            login: &Login,
            provider: &'static str,
        ) -> Result<Keys, String> {
            Ok(Keys { login: login.clone(), provider, source: OnceCell::new() })
        }

        /// The value of the header `authorization`.
        ///
        /// # Errors
        /// No credentials, or none that are good for a key; said without them.
        pub(in crate::provider) async fn header(&self) -> Result<HeaderValue, ModelError> {
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
            let source = self.source.get_or_try_init(|| source(&self.login)).await?;
            let token = source.token(&[self.login.vars.scope]).await.map_err(|e| words(&e))?;
            let mut header = HeaderValue::from_str(&format!("Bearer {}", token.as_str()))
                .map_err(|_| "the token that was fetched is none".to_owned())?;
            header.set_sensitive(true);
            Ok(header)
        }
    }

    /// Where the keys come from.
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
            Ok(found) => return Ok(Arc::new(found)),
            Err(Error::Io(_, error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("what gcloud logged in: {}", words(&error))),
        }
        match timeout(MACHINE_TIMEOUT, MetadataServiceAccount::new()).await {
            Ok(Ok(found)) => Ok(Arc::new(found)),
            // Whoever is not in Google's cloud wants to know nothing of its machines.
            Ok(Err(_)) | Err(_) => Err("there are no application default credentials".to_owned()),
        }
    }

    /// What a file of credentials says of itself.
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "type")]
        kind: String,
        token_uri: Option<String>,
    }

    /// The service account of a file.
    fn account(file: &str) -> Result<CustomServiceAccount, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let head: Head = serde_json::from_str(&text).map_err(|e| place("no credentials", &e))?;
        if head.kind != "service_account" {
            let kind = endstop_wire::redact::secrets_out(&head.kind);
            return Err(format!("its type is `{kind}`, and only `service_account` is understood"));
        }
        // What is no address may not come as far as a request.
        let address = head.token_uri.unwrap_or_default();
        if !web_address(&address).is_ok_and(|url| url.as_str() == address) {
            return Err("its `token_uri` is no address".to_owned());
        }
        CustomServiceAccount::from_json(&text).map_err(|error| words(&error))
    }

    /// What went wrong, without what was read: that may be a secret.
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
    use endstop_core::ModelError;
    use endstop_wire::endpoint::Login;
    use reqwest::header::HeaderValue;

    /// No keys: this is built without.
    #[derive(Debug)]
    pub(in crate::provider) enum Keys {}

    impl Keys {
        pub(in crate::provider) fn new(_: &Login, provider: &'static str) -> Result<Keys, String> {
            Err(format!(
                "no key for {provider}: this program is built without application default credentials (feature `google-login`)"
            ))
        }

        #[expect(clippy::unused_async, reason = "as with the feature")]
        pub(in crate::provider) async fn header(&self) -> Result<HeaderValue, ModelError> {
            match *self {}
        }
    }
}
