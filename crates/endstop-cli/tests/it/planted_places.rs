//! The places of a request in which a client may put a secret.

/// A place. `SECRET` in its parts stands for the secret.
pub(crate) struct Place {
    pub(crate) what: &'static str,
    /// The name of the run, if it is not the default.
    pub(crate) run: &'static str,
    pub(crate) query: &'static str,
    pub(crate) headers: &'static str,
    pub(crate) body: &'static str,
    pub(crate) spelling: Spelling,
}

/// The way in which the secret is written.
#[derive(Clone, Copy)]
pub(crate) enum Spelling {
    Plain,
    Percent,
    Base64,
    JsonEscape,
}

impl Place {
    pub(crate) const NONE: Place =
        Place { what: "", run: "", query: "", headers: "", body: "", spelling: Spelling::Plain };

    pub(crate) fn spelled(&self, secret: &str) -> String {
        match self.spelling {
            Spelling::Plain => secret.to_owned(),
            Spelling::Percent => secret.replace('-', "%2d").replace('o', "%6F"),
            Spelling::Base64 => {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.encode(format!("user:{secret}"))
            }
            Spelling::JsonEscape => secret.replace('o', "\\u006f"),
        }
    }
}

const fn header(what: &'static str, headers: &'static str) -> Place {
    Place { what, headers, ..Place::NONE }
}

const fn query(what: &'static str, query: &'static str) -> Place {
    Place { what, query, ..Place::NONE }
}

const fn body(what: &'static str, body: &'static str) -> Place {
    Place { what, body, ..Place::NONE }
}

pub(crate) const HEADERS: [Place; 28] = [
    header("Bearer", "authorization: Bearer SECRET\r\n"),
    header("bearer in lower case, two blanks", "authorization: bearer  SECRET\r\n"),
    header("a key without scheme", "authorization: SECRET\r\n"),
    header("an unknown scheme", "Authorization: Token SECRET\r\n"),
    Place { spelling: Spelling::Base64, ..header("Basic", "authorization: Basic SECRET\r\n") },
    header("x-api-key", "x-api-key: SECRET\r\n"),
    header("X-API-KEY in capitals", "X-API-KEY: SECRET\r\n"),
    header("api-key", "api-key: SECRET\r\n"),
    header("x-goog-api-key", "x-goog-api-key: SECRET\r\n"),
    header("a cookie", "cookie: theme=dark; sid=SECRET; lang=de\r\n"),
    header("x-amz-security-token", "x-amz-security-token: SECRET\r\n"),
    header("x-auth-token", "x-auth-token: SECRET\r\n"),
    header("proxy-authorization", "proxy-authorization: Basic SECRET\r\n"),
    header("a subscription key", "ocp-apim-subscription-key: SECRET\r\n"),
    header("a key of a gateway", "x-litellm-api-key: SECRET\r\n"),
    header("a key of a gateway with a scheme", "cf-aig-authorization: Bearer SECRET\r\n"),
    header("Helicone", "helicone-auth: Bearer SECRET\r\n"),
    header("Portkey", "x-portkey-virtual-key: SECRET\r\n"),
    header("a header of any name", "x-custom: SECRET\r\n"),
    header("another header of any name", "x-team-access: v1 SECRET\r\n"),
    header("a signature", "x-signature: SECRET\r\n"),
    header("a password", "x-password: SECRET\r\n"),
    header("a JWT's header", "x-user-jwt: SECRET\r\n"),
    header("two keys", "x-api-key: dummy\r\nauthorization: Bearer SECRET\r\n"),
    header("the same header twice", "x-api-key: dummy\r\nx-api-key: SECRET\r\n"),
    header("credentials", "x-credentials: SECRET\r\n"),
    header("escaped by the server", "x-note: escaped-please\r\nauthorization: Bearer SECRET\r\n"),
    header("a session token", "x-session-token: SECRET\r\n"),
];

pub(crate) const QUERIES: [Place; 14] = [
    query("key", "?key=SECRET"),
    query("api_key", "?api_key=SECRET"),
    query("api-key", "?api-version=1&api-key=SECRET"),
    query("access_token", "?access_token=SECRET&alt=json"),
    query("token", "?token=SECRET"),
    query("sig", "?sig=SECRET"),
    query("auth", "?auth=SECRET"),
    query("a parameter of any name", "?zz=SECRET"),
    query("another parameter of any name", "?code=SECRET&beta=true"),
    query("no name", "?SECRET"),
    query("a second word", "?a&SECRET"),
    Place { spelling: Spelling::Percent, ..query("an escaped key", "?key=SECRET") },
    Place { spelling: Spelling::Percent, ..query("an escaped value of any name", "?zz=SECRET") },
    query("an escaped name", "?%6bey=SECRET"),
];

pub(crate) const NAMES: [Place; 10] = [
    Place {
        what: "the name of the run",
        run: "SECRET",
        headers: "x-api-key: SECRET\r\n",
        ..Place::NONE
    },
    Place {
        what: "the beginning of the name of the run",
        run: "SECRET.7",
        headers: "authorization: Bearer SECRET\r\n",
        ..Place::NONE
    },
    Place {
        what: "the name of the run in a query",
        run: "a-SECRET",
        query: "?key=SECRET",
        ..Place::NONE
    },
    Place {
        what: "the model",
        headers: "x-api-key: SECRET\r\n",
        body: r#"{"model":"SECRET","messages":[{"role":"user","content":"Go."}]}"#,
        ..Place::NONE
    },
    Place {
        what: "the model of a body that cannot be read",
        headers: "x-api-key: SECRET\r\n",
        body: r#"{"model":"SECRET","messages":"#,
        ..Place::NONE
    },
    Place {
        what: "the session",
        headers: "x-api-key: SECRET\r\nx-session-id: SECRET\r\nuser-agent: opencode/1\r\n",
        ..Place::NONE
    },
    Place {
        what: "the profile",
        headers: "x-api-key: SECRET\r\nx-endstop-profile: SECRET\r\n",
        ..Place::NONE
    },
    Place {
        what: "the run in a header",
        headers: "x-api-key: SECRET\r\nx-endstop-run: SECRET\r\n",
        ..Place::NONE
    },
    Place {
        what: "an invalid name of a run",
        run: "-SECRET",
        headers: "x-api-key: SECRET\r\n",
        ..Place::NONE
    },
    Place {
        what: "the user agent",
        headers: "x-api-key: SECRET\r\nuser-agent: SECRET\r\n",
        ..Place::NONE
    },
];

pub(crate) const BODIES: [Place; 12] = [
    body("api_key", r#"{"model":"m","api_key":"SECRET","messages":[]}"#),
    body("apiKey with blanks", r#"{"model":"m", "apiKey" : "SECRET", "messages":[]}"#),
    body(
        "the key of a tool's server",
        r#"{"model":"m","messages":[],"tools":[{"type":"mcp","authorization":"SECRET"}]}"#,
    ),
    body(
        "the headers of a tool's server",
        r#"{"model":"m","messages":[],"tools":[{"type":"mcp","headers":{"Authorization":"Bearer SECRET"}}]}"#,
    ),
    body(
        "another header of a tool's server",
        r#"{"model":"m","messages":[],"tools":[{"type":"mcp","headers":{"X-Api-Key":"SECRET"}}]}"#,
    ),
    body("metadata", r#"{"model":"m","messages":[],"metadata":{"access_token":"SECRET"}}"#),
    body("a password", r#"{"model":"m","messages":[],"extra":{"db":{"password":"SECRET"}}}"#),
    body(
        "the token of a server in Anthropic's form",
        r#"{"model":"m","messages":[],"mcp_servers":[{"authorization_token":"SECRET","url":"x"}]}"#,
    ),
    Place {
        spelling: Spelling::JsonEscape,
        ..body("an escaped key", r#"{"model":"m","api_key":"SECRET","messages":[]}"#)
    },
    body("a secret", r#"{"model":"m","client_secret":"SECRET","messages":[]}"#),
    Place {
        what: "a tool's result",
        headers: "x-api-key: SECRET\r\n",
        body: r#"{"model":"m","messages":[{"role":"user","content":"Go."},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"k\":\"SECRET\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"it is SECRET"}]}"#,
        ..Place::NONE
    },
    Place {
        what: "the name of a tool",
        headers: "x-api-key: SECRET\r\n",
        body: r#"{"model":"m","messages":[{"role":"user","content":"Go."}],"tools":[{"type":"function","function":{"name":"SECRET","parameters":{}}}]}"#,
        ..Place::NONE
    },
];
