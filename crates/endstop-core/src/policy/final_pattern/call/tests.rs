use super::*;
use proptest::prelude::*;

impl Scanner {
    /// Reads each character without skipping idle text.
    fn push_every_character(&mut self, piece: &str) {
        self.idle = false;
        let start = self.text.len();
        self.text.push_str(piece);
        for (i, c) in piece.char_indices() {
            self.character(start + i, c);
        }
        self.read = self.text.len();
    }
}

fn found(declaration: &Declaration<'_>) -> (Callee, usize, String) {
    (declaration.callee(), declaration.at(), declaration.argument().to_owned())
}

/// Checks that both ways of reading find the same, after each chunk and at the end.
fn check(pieces: &[String], options: ScannerOptions) -> Result<(), TestCaseError> {
    let (mut fast, mut literal) = (Scanner::new(options), Scanner::new(options));
    for piece in pieces {
        fast.push(piece);
        literal.push_every_character(piece);
        let decided = literal.decided().map(|d| found(&d));
        prop_assert_eq!(fast.decided().map(|d| found(&d)), decided);
    }
    fast.finish();
    literal.finish();
    let of = |scanner: &Scanner| scanner.declarations().iter().map(found).collect::<Vec<_>>();
    prop_assert_eq!(of(&fast), of(&literal));
    Ok(())
}

const WORDS: &[&str] = &[
    "FINAL",
    "FINAL_VAR",
    "SUBMIT",
    "final",
    "Submit",
    "FINAL(",
    "FINAL('x')",
    "FINAL (7)",
    "SUBMIT(a=1)",
    "FINAL(a)",
    "xFINAL(1)",
    "\u{e9}FINAL('y')",
    "\u{e9}",
    "FINAL_VAR(name)",
    "SUBMIT(",
    "FINAL_",
    "(",
    ")",
    "((",
    "'",
    "\"",
    "'''",
    "\\",
    "`",
    "``",
    "```",
    "~~~",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    " ",
    "\t",
    "=",
    "==",
    "x",
    "_",
    "a",
    "- ",
    "> ",
    "1. ",
    ".",
    "!",
    "*",
    ",",
    "\n```\n",
    "\n~~~~\n",
    "`FINAL(1)`",
];

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let word = proptest::sample::select(WORDS).prop_map(str::to_owned);
    let long = (4080usize..4112).prop_map(|n| "y".repeat(n));
    let blank = (4080usize..4112).prop_map(|n| " ".repeat(n));
    let part = prop_oneof![60 => word, 1 => long, 1 => blank];
    proptest::collection::vec(proptest::collection::vec(part, 0..6), 0..14)
        .prop_map(|all| all.into_iter().map(|parts| parts.concat()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn searching_equals_reading_every_character(
        pieces in pieces(),
        prose: bool,
        case_sensitive: bool,
        last: bool,
    ) {
        let pick = if last { Pick::Last } else { Pick::First };
        let options = ScannerOptions { prose, case_sensitive, pick };
        check(&pieces, options)?;
        check(&[pieces.concat()], options)?;
    }
}

#[test]
fn text_without_openings_is_not_read() {
    let mut scanner = Scanner::new(ScannerOptions { prose: true, ..ScannerOptions::default() });
    scanner.push("FINAL answer: `x` (see f(y)) xFINAL(1)\n");
    assert_eq!(scanner.read, 0);
    scanner.push("`FINAL(1` FINAL(");
    assert!(!scanner.idle);
    // Both are dead: one is code, and one is followed by the rest of a sentence.
    scanner.push("of the game) was good\n");
    assert!(scanner.idle && scanner.brackets.is_empty());
    scanner.push("FINAL('x')");
    assert_eq!(scanner.decided().map(|d| d.argument().to_owned()).as_deref(), Some("'x'"));
}
