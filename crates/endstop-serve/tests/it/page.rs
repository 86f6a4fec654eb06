//! The live page as files: its headers, and what its code does not do.

use crate::support::{Lab, Scripted};

#[tokio::test(flavor = "multi_thread")]
async fn page_has_a_strict_policy() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    for (path, kind) in
        [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
    {
        let answer = lab.get(path).await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains(&format!("content-type: {kind}")), "{answer:?}");
        for header in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{header} is not in {}", answer.head);
        }
        assert!(!answer.head.contains("unsafe"), "{}", answer.head);
        // Nothing is loaded from another server.
        assert!(!answer.body.contains("http://") && !answer.body.contains("https://"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_text_as_text() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let html = lab.get("/").await.body;
    for part in ["onclick=", "onload=", "style=", "<script>", "<style>", "javascript:"] {
        assert!(!html.contains(part), "{part}");
    }
    let script = lab.get("/page.js").await.body;
    for part in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "new Function",
        "localStorage",
        "document.cookie",
    ] {
        assert!(!script.contains(part), "{part}");
    }
    assert!(script.contains("textContent"));
}
