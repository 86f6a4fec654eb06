//! Leaves out of a tool result what its client adds and what differs each time, such as a time:
//! otherwise no result would be equal to the one before, and no repetition would be seen.

/// Beginnings of lines that codex (the first two) and Gemini CLI add to the output of a command.
const VOLATILE: [&str; 4] =
    ["Chunk ID: ", "Wall time: ", "Process Group PGID: ", "Background PIDs: "];

/// Longest line that can be one of those, in bytes. A longer line is output of the command.
const LONGEST: usize = 80;

/// Returns the result without lines that only its client has added.
///
/// ```
/// use endstop_guard::exchange::steady;
/// let result = "Chunk ID: 1b4c9f\nWall time: 0.0512 seconds\nOutput:\nready\n".to_owned();
/// assert_eq!(steady(result), "Output:\nready\n");
/// ```
pub fn steady(result: String) -> String {
    // Most results have no such line, and are returned as they are.
    if !VOLATILE.iter().any(|start| result.contains(start)) {
        return result;
    }
    let is_volatile =
        |line: &str| line.len() <= LONGEST && VOLATILE.iter().any(|start| line.starts_with(start));
    result.split_inclusive('\n').filter(|line| !is_volatile(line)).collect()
}
