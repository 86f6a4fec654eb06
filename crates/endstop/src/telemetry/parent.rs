//! The place of a span in a trace, as programs pass it on by W3C Trace Context.

/// The place of a span in a trace: the value of a header `traceparent`, or of the variable `TRACEPARENT`.
///
/// ```
/// use endstop::telemetry::TraceParent;
/// let parent = TraceParent::read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
/// assert_eq!(parent.trace_id(), "0af7651916cd43dd8448eb211c80319c");
/// assert!(TraceParent::read("00-0-0-01").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The version, both ids and the flags, of a form that was checked.
    text: String,
}

impl TraceParent {
    /// Reads a value; `None` if it is not valid, which the standard says to ignore.
    pub fn read(text: &str) -> Option<TraceParent> {
        let text = text.trim();
        let mut fields = text.split('-');
        let mut field = |length: usize| {
            let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            fields.next().filter(|field| field.len() == length && field.bytes().all(hex))
        };
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        // Later versions may have more fields, and `ff` is never valid.
        let is_known = version == "00" && fields.next().is_none();
        if is_zero(trace) || is_zero(span) || version == "ff" || !(is_known || version != "00") {
            return None;
        }
        Some(TraceParent { text: format!("00-{trace}-{span}-{flags}") })
    }

    /// The value of the header.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The id of the trace, in hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.text[3..35]
    }

    /// Runs code whose spans belong below this place, if there is one. Without the feature `opentelemetry` it is
    /// ignored.
    pub fn above<T>(parent: Option<&TraceParent>, code: impl FnOnce() -> T) -> T {
        #[cfg(feature = "opentelemetry")]
        let _attached = parent.map(|parent| {
            use opentelemetry::trace::TraceContextExt as _;
            opentelemetry::Context::new().with_remote_span_context(parent.context()).attach()
        });
        #[cfg(not(feature = "opentelemetry"))]
        let _ = parent;
        code()
    }

    #[cfg(feature = "opentelemetry")]
    pub(super) fn context(&self) -> opentelemetry::trace::SpanContext {
        use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
        // The digits were checked; an id that is not valid would be no place at all.
        let (trace, span) = (&self.text[3..35], &self.text[36..52]);
        let trace = TraceId::from_hex(trace).unwrap_or(TraceId::INVALID);
        let span = SpanId::from_hex(span).unwrap_or(SpanId::INVALID);
        let flags = u8::from_str_radix(&self.text[53..55], 16).unwrap_or_default();
        let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
        SpanContext::new(trace, span, flags, true, TraceState::NONE)
    }

    #[cfg(feature = "opentelemetry")]
    pub(super) fn of(context: &opentelemetry::trace::SpanContext) -> Option<TraceParent> {
        let (trace, span) = (context.trace_id(), context.span_id());
        let flags = u8::from(context.is_sampled());
        context.is_valid().then(|| TraceParent { text: format!("00-{trace}-{span}-{flags:02x}") })
    }
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn only_valid_places_are_read() {
        let read = |text: String| TraceParent::read(&text).map(|parent| parent.text);
        let (span, zero) = ("b7ad6b7169203331", "0".repeat(32));
        let valid = format!("00-{TRACE}-{span}-01");
        assert_eq!(read(valid.clone()), Some(valid.clone()));
        assert_eq!(read(format!(" {valid} ")), Some(valid.clone()));
        // A later version is read as far as this one knows it.
        assert_eq!(read(format!("cc-{TRACE}-{span}-01-more")), Some(valid.clone()));
        for wrong in [
            String::new(),
            format!("ff-{TRACE}-{span}-01"),
            format!("00-{zero}-{span}-01"),
            format!("00-{TRACE}-{}-01", &zero[..16]),
            format!("00-{TRACE}-{span}"),
            format!("00-{TRACE}-{span}-01-more"),
            format!("00-{}-{span}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{span}-é"),
            format!("{valid}\r\nx: y"),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }
}
