#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| endstop_fuzz::fuzz("bedrock-invoke", data));
