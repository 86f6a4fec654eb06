pub(crate) const FORMATS: &[super::Format] = &[];
