//! The shared parts of charts: a canvas for SVG, estimates of the width of text, and the steps of an axis.
//!
//! ```
//! use endstop_report::chart::Canvas;
//! use endstop_report::html::Escaper;
//! let escaper = Escaper::default();
//! let mut canvas = Canvas::new(380.0, &escaper);
//! canvas.text((4.0, 20.0), "start", "", "a < b");
//! assert!(canvas.finish(40.0, "a chart").ends_with(">a &lt; b</text></svg>"));
//! ```

use crate::html::Escaper;
use std::fmt::{self, Write as _};

/// A place on a canvas: from the left, and from the top.
pub type Place = (f64, f64);

/// An SVG drawing. Text is escaped and redacted; styles and paths are those of the program.
#[derive(Debug)]
pub struct Canvas<'e> {
    escaper: &'e Escaper,
    out: String,
    /// Width: 1000 for a screen, 380 for a phone.
    pub width: f64,
    /// Size of the letters. The narrow chart is scaled less, so smaller letters look the same.
    pub font: f64,
}

impl<'e> Canvas<'e> {
    /// Creates an empty drawing of this width.
    pub fn new(width: f64, escaper: &'e Escaper) -> Canvas<'e> {
        let font = if width < 500.0 { 13.0 } else { 15.0 };
        Canvas { escaper, out: String::new(), width, font }
    }

    /// `true` on a phone.
    pub fn is_narrow(&self) -> bool {
        self.width < 500.0
    }

    /// Escapes text for the drawing, without secrets.
    pub fn escape(&self, text: &str) -> String {
        self.escaper.escape(text)
    }

    /// Draws text. `anchor` is the part of it that is at the place: `start`, `middle` or `end`.
    pub fn text(&mut self, at: Place, anchor: &str, style: &str, text: &str) {
        self.text_of_size(at, self.font, anchor, style, text);
    }

    /// Draws text in letters of another size.
    pub fn text_of_size(&mut self, at: Place, font: f64, anchor: &str, style: &str, text: &str) {
        let (x, y) = at;
        let text = self.escape(text);
        let _ = write!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{font}\" text-anchor=\"{anchor}\" style=\"{style}\">{text}</text>"
        );
    }

    /// Draws a line with these attributes.
    pub fn line(&mut self, from: Place, to: Place, attributes: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {attributes}/>"
        );
    }

    /// Draws a rectangle by its upper left corner, its width and its height.
    pub fn rect(&mut self, corner: Place, size: (f64, f64), attributes: &str) {
        let ((x, y), (wide, tall)) = (corner, size);
        let _ = write!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" {attributes}/>"
        );
    }

    /// Draws a point with an explanation, which a reader sees on pointing at it.
    pub fn dot(&mut self, at: Place, radius: f64, attributes: &str, title: &str) {
        let ((x, y), title) = (at, self.escape(title));
        let _ = write!(
            self.out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {attributes}><title>{title}</title></circle>"
        );
    }

    /// Draws shapes that share an explanation.
    pub fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        let title = self.escape(title);
        let _ = write!(self.out, "<g><title>{title}</title>");
        draw(self);
        self.out.push_str("</g>");
    }

    /// Draws a path: `d` is its data.
    pub fn path(&mut self, d: &str, attributes: &str) {
        let _ = write!(self.out, "<path d=\"{d}\" {attributes}/>");
    }

    /// Returns the drawing with this height, and a label for those who do not see it.
    pub fn finish(self, height: f64, label: &str) -> String {
        let (width, label) = (self.width, self.escape(label));
        format!(
            "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{label}\">{}</svg>",
            self.out
        )
    }
}

/// Writes markup as it is; what comes from outside is escaped first.
impl fmt::Write for Canvas<'_> {
    fn write_str(&mut self, markup: &str) -> fmt::Result {
        self.out.write_str(markup)
    }
}

/// Estimates the width of text, because SVG has no text layout: 0.56 em for a letter.
pub fn text_width(text: &str, font: f64) -> f64 {
    text.chars().count() as f64 * font * 0.56
}

/// As [`text_width`], for bold text.
pub fn bold_width(text: &str, font: f64) -> f64 {
    text_width(text, font) * 1.13
}

/// Returns the first of these steps that divides a range into at most `most` parts, or the last one.
pub fn step(range: f64, most: f64, steps: &[f64]) -> f64 {
    let found = steps.iter().copied().find(|step| range / step <= most);
    found.or(steps.last().copied()).unwrap_or(range)
}
