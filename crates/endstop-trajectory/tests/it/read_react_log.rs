//! Tests the reader for ReAct logs.

use crate::common::{Folder, counts, ending, parsed, read_bytes, read_with, runs};
use endstop_trajectory::read::{Options, ProblemKind};

#[test]
fn fixture_counts_match_manual_count() {
    let runs = runs("react_log/reflexion_hotpot_base.txt");
    let got: Vec<_> = runs.iter().map(|run| (counts(run), run.recorded.success)).collect();
    assert_eq!(
        got,
        [
            ([4, 3, 3, 3, 0], Some(true)),
            ([4, 3, 3, 3, 1], Some(true)),
            ([5, 4, 4, 4, 0], Some(true)),
            ([4, 3, 3, 3, 1], Some(false)),
            ([5, 4, 4, 4, 1], Some(false)),
            ([4, 3, 3, 3, 0], Some(false)),
        ]
    );
    assert!(runs.iter().all(|run| run.trial.as_deref() == Some("1")));
    let run = &runs[0];
    assert_eq!((&*run.run_id, run.origin.at), ("reflexion_hotpot_base/1", Some(8)));
    assert_eq!(run.steps[1].calls[0].name, "Search");
    assert_eq!(run.steps[1].calls[0].arguments, r#"{"query":"Jonny Craig"}"#);
    assert_eq!(ending(run), Some(("final", Some("correct"))));
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("Jonny Craig"));
    assert_eq!(run.labels["gold"], "Jonny\" Craig");
    let passage = &runs[2].steps[2].results[0].content;
    assert!(passage.contains('\n') && passage.ends_with("Shema Yisrael, which begins: \"Hear, O Israel: the LORD our God, the LORD is one.\"In Islamic theology, the term most closely corresponding to \"creed\" is ʿaqīdah (عقيدة)."), "a passage of several lines");
}

const HEAD: &str = "BEGIN TRIAL 2\n------------- BEGIN HALTED AGENTS --------------\n\n";

#[test]
fn halted_run_failed_at_step_limit() {
    let log = format!(
        "{HEAD}Question: Who?\nReflections:\n- Search less.\n- Or more.\nThought 1: a\nAction 1: Search[x [y]]\n\
         Observation 1: Could not find [x [y]].\nThought 2: b\nAction 2: Lookup[z]\nObservation 2: No Results\n\
         Correct answer: They\n\nQuestion: Which?\nThought 1: c\nAction 1: Finish\nObservation 1: Invalid Action.\nCorrect answer: It"
    );
    let runs = parsed("a.txt", log);
    let run = &runs[0];
    assert_eq!(counts(run), [3, 2, 2, 2, 1]);
    assert_eq!(run.recorded.success, Some(false));
    assert_eq!(ending(run), Some(("max_steps", Some("halted"))));
    assert_eq!(run.steps[0].text, "Question: Who?\nReflections:\n- Search less.\n- Or more.");
    assert_eq!(run.steps[1].calls[0].arguments, r#"{"query":"x [y]"}"#);
    assert_eq!((run.task_id.as_deref(), run.trial.as_deref()), (Some("Who?"), Some("2")));
    assert_eq!(runs[1].steps[1].calls[0].arguments, "{}");
}

#[test]
fn ending_without_heading_is_unknown() {
    let log = "Question: Who?\nThought 1: a\nAction 1: Search[x]\nObservation 1: y\n\n\
               Question: Which?\nThought 1: a\nAction 1: Finish[z]\nObservation 1: Answer is INCORRECT\n";
    let runs = parsed("a.txt", log);
    assert_eq!((runs[0].recorded.success, ending(&runs[0])), (None, None));
    assert_eq!((runs[1].recorded.success, ending(&runs[1])), (Some(false), Some(("final", None))));
}

#[test]
fn passage_lines_are_not_log_lines() {
    let log = "Question: Who?\nThought 1: a\nAction 1: Search[x]\nObservation 1: It reads\n\
               Question: of the day\nThought 7: by no one\nAction 1: is another\n\nCorrect: no\n\
               Thought 2: b\nAction 2: Finish[z]\nObservation 2: Answer is CORRECT\n";
    let run = parsed("a.txt", log).remove(0);
    assert_eq!(counts(&run), [3, 2, 2, 2, 0]);
    let told = &run.steps[1].results[0].content;
    assert_eq!(
        told,
        "It reads\nQuestion: of the day\nThought 7: by no one\nAction 1: is another\n\nCorrect: no"
    );
}

#[test]
fn passage_may_contain_unnumbered_log_lines() {
    let log = "Question: Who?\nReflections:\n- Search less.\nThought 1: a\nAction 1: Search[x]\n\
               Observation 1: It reads\nReflection: of the moon\nObservation: it was seen that\n\
               Thought: no\nAction: none\nThought 2: b\nAction 2: Finish[z]\n\
               Observation 2: Answer is CORRECT\n";
    let run = parsed("a.txt", log).remove(0);
    assert_eq!((counts(&run), run.recorded.success), ([3, 2, 2, 2, 0], Some(true)));
    assert_eq!(run.steps[0].text, "Question: Who?\nReflections:\n- Search less.");
    let told = &run.steps[1].results[0].content;
    assert_eq!(told.lines().count(), 5, "{told}");
    assert_eq!((&*run.steps[2].text, run.notes.len()), ("b", 0));
}

#[test]
fn section_decides_unjudged_run() {
    let log = "------------- BEGIN CORRECT AGENTS -------------\n\nQuestion: Who?\nThought 1: a\n\
               Action 1: Finish[x]\nObservation 1: Episode finished\nCorrect answer: x\n";
    for (log, success) in
        [(log.to_owned(), true), (log.replace("CORRECT AGENTS", "INCORRECT AGENTS"), false)]
    {
        let run = parsed("a.txt", log).remove(0);
        assert_eq!(run.recorded.success, Some(success));
        assert_eq!(ending(&run).map(|(reason, _)| reason), Some("final"));
    }
}

#[test]
fn prompt_is_not_a_log() {
    let prompt =
        "Question: {question}\nThought: think\nAction: Search[x]\nObservation: what it gave\n";
    let shots = "Question: Who?\nThought 1: a\nAction 1: Finish[x]\n\nQuestion: Which?\n";
    for (name, text) in [("a.txt", prompt), ("a.txt", shots), ("a.md", &*format!("{HEAD}{shots}"))]
    {
        let (runs, problems) = read_bytes(name, text, &Options::default());
        assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::NoTrajectory), "{name} {text}");
    }
}

#[test]
fn chain_of_thought_has_context() {
    for log in [
        "Context: One.\n\nTwo.Question: Who?\nThought: a\nAction: Finish[z]\nObservation: Answer is CORRECT\nCorrect answer: z\n",
        "Context: One.\n\nTwo.\nQuestion: Who?\nThought: a\nAction: Finish[z]\nObservation: Answer is CORRECT\nCorrect answer: z\n",
    ] {
        let run = parsed("a.txt", log).remove(0);
        assert_eq!(counts(&run), [2, 1, 1, 1, 0]);
        assert_eq!(run.steps[0].text, "Context: One.\n\nTwo.\nQuestion: Who?");
        assert_eq!(run.recorded.success, Some(true));
    }
    let log = "Context: \nQuestion: Who?\nThought: a\nAction: Finish[z]\nObservation: Answer is CORRECT\n";
    assert_eq!(parsed("a.txt", log)[0].steps[0].text, "Question: Who?");
}

#[test]
fn text_file_in_folder_needs_log() {
    let folder = Folder::new("react-log");
    folder.file("notes.txt", "Question: what to do?\nAnswer: nothing.\n");
    folder.file("log.txt", format!("{HEAD}Question: Who?\nThought 1: a\nAction 1: Finish[x]\nObservation 1: Answer is CORRECT\n"));
    let (runs, problems) = read_with(&folder.0, &Options::default());
    assert_eq!((runs.len(), problems.len()), (1, 0));
    assert_eq!(runs[0].run_id, "log/1");
}

#[test]
fn truncated_log_is_reported() {
    let run = "Question: Who?\nThought 1: a\nAction 1: Finish[x]\nObservation 1: Answer is CORRECT\n\
               Correct answer: x\n\n";
    let (runs, problems) =
        read_bytes("a.txt", format!("{run}Question: Which?\nThought 1: b"), &Options::default());
    assert_eq!(runs.len(), 2);
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::Half, Some(7)));
    let lost = format!("{run}Questoin: Which?\nThought 1: b\n{run}");
    let (runs, problems) = read_bytes("a.txt", lost, &Options::default());
    assert_eq!((runs.len(), problems.len()), (2, 1));
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::Malformed, Some(7)));
}

#[test]
fn invalid_bytes_are_reported() {
    let mut log = b"Question: Who?\nThought 1: a\nAction 1: Search[x]\nObservation 1: ".to_vec();
    log.extend(b"caf\xe9\nThought 2: b\nAction 2: Finish[x]\nObservation 2: Answer is CORRECT\n");
    let (runs, problems) = read_bytes("a.txt", log, &Options::default());
    assert_eq!((runs.len(), problems.len()), (1, 1));
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::Malformed, Some(4)));
}
