//! Builds the tree of a trace's spans, and divides it into runs.
//!
//! ```text
//! let found = tree::runs(&trace, spans, sink);
//! ```

use super::assemble::Builder;
use super::facts::{name_of, of_agent};
use super::span::{Kind, Span};
use crate::model::{Origin, Trajectory};
use crate::read::build::fields::Fields;
use crate::read::format::Sink;
use crate::read::problem::Problem;
use serde_json::Value;
use std::collections::HashMap;

/// The properties that all runs of a trace share.
pub(super) struct Trace<'t> {
    pub(super) id: &'t str,
    /// Attributes of the resource that sent the trace.
    pub(super) resource: Fields,
    /// The index of the trace in the file, if there are several.
    pub(super) at: Option<u64>,
}

/// Passes the runs of a trace to the sink, and returns their number.
pub(super) fn runs(trace: &Trace<'_>, mut spans: Vec<Span>, sink: &mut Sink<'_>) -> u64 {
    // By start time. If two spans start together, the longer one encloses the other and comes
    // first.
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let tree = Tree::of(&spans);
    let mut found = 0;
    for group in tree.groups(&spans) {
        let Some(mut run) = tree.run(trace.id, &spans, group, 0) else { continue };
        run.origin = Origin { at: trace.at, ..Origin::default() };
        for (name, value) in &trace.resource {
            run.extra.insert(format!("resource.{name}"), value.clone());
        }
        found += 1;
        sink(Ok::<_, Problem>(run));
    }
    found
}

/// Maximum nesting depth of subagents, because the tree is traversed recursively.
const DEEPEST: u8 = 16;

/// The parent relations of a trace's spans.
struct Tree {
    /// The root of each span.
    roots: Vec<usize>,
    /// The closest tool span above each span.
    tools: Vec<Option<usize>>,
    /// The closest agent span above each span, or the span itself.
    agents: Vec<Option<usize>>,
    /// `true` for spans below a model call.
    inner: Vec<bool>,
    /// The spans below each tool span, up to the next tool span.
    below: HashMap<usize, Vec<usize>>,
    /// The spans of each root that are not below a tool span.
    of_roots: HashMap<usize, Vec<usize>>,
    twice: u64,
}

/// A set of spans that is one run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Trace,
    /// The spans below this root.
    Root(usize),
    /// The spans that are not below an agent at the top.
    Rest,
    /// The spans below this tool's span.
    Tool(usize),
}

impl Tree {
    fn of(spans: &[Span]) -> Tree {
        let mut by_id = HashMap::new();
        let mut twice = 0;
        for (i, span) in spans.iter().enumerate() {
            twice += u64::from(by_id.insert(span.id.as_str(), i).is_some());
        }
        let parent = |i: usize| by_id.get(spans[i].parent.as_deref()?).copied();
        let mut tree = Tree {
            roots: (0..spans.len()).collect(),
            tools: vec![None; spans.len()],
            agents: vec![None; spans.len()],
            inner: vec![false; spans.len()],
            below: HashMap::new(),
            of_roots: HashMap::new(),
            twice,
        };
        let mut state = vec![State::Unseen; spans.len()];
        let mut path = Vec::new();
        for i in 0..spans.len() {
            // Walk up to a span that is done, or to a root. Invalid recordings may contain cycles,
            // which are cut at the span that closes them.
            let mut at = Some(i);
            while let Some(here) = at.filter(|at| state[*at] == State::Unseen) {
                state[here] = State::OnPath;
                path.push(here);
                at = parent(here).filter(|on| state[*on] != State::OnPath);
            }
            while let Some(here) = path.pop() {
                tree.hang(spans, here, parent(here).filter(|on| state[*on] == State::Done));
                state[here] = State::Done;
            }
        }
        for (i, tool) in tree.tools.iter().enumerate() {
            let (members, above) = match tool {
                Some(tool) => (&mut tree.below, *tool),
                None => (&mut tree.of_roots, tree.roots[i]),
            };
            members.entry(above).or_default().push(i);
        }
        tree
    }

    /// Inherits the properties of a span from its parent.
    fn hang(&mut self, spans: &[Span], here: usize, on: Option<usize>) {
        if let Some(on) = on {
            self.roots[here] = self.roots[on];
            self.tools[here] = if spans[on].kind == Kind::Tool { Some(on) } else { self.tools[on] };
            self.agents[here] = self.agents[on];
            self.inner[here] = match spans[on].kind {
                Kind::Chat => true,
                // The model calls of a tool belong to the tool, even if the tool ran inside a model
                // call.
                Kind::Tool => false,
                _ => self.inner[on],
            };
        }
        if spans[here].kind == Kind::Agent {
            self.agents[here] = Some(here);
        }
    }

    fn groups(&self, spans: &[Span]) -> Vec<Group> {
        let is_top = |i: &usize| self.roots[*i] == *i;
        let agents: Vec<usize> =
            (0..spans.len()).filter(is_top).filter(|i| spans[*i].kind == Kind::Agent).collect();
        // With a single agent, spans outside it belong to the same run.
        if agents.len() < 2 {
            return vec![Group::Trace];
        }
        agents.into_iter().map(Group::Root).chain([Group::Rest]).collect()
    }

    fn members(&self, spans: &[Span], group: Group) -> Vec<usize> {
        let is_rest = |i: &usize| spans[self.roots[*i]].kind != Kind::Agent;
        let outside_tools = || (0..spans.len()).filter(|i| self.tools[*i].is_none());
        match group {
            Group::Tool(tool) => self.below.get(&tool).cloned().unwrap_or_default(),
            // From the map, because a search for each of many agents would take quadratic time.
            Group::Root(root) => self.of_roots.get(&root).cloned().unwrap_or_default(),
            Group::Trace => outside_tools().collect(),
            Group::Rest => outside_tools().filter(is_rest).collect(),
        }
    }

    fn run(
        &self,
        trace: &str,
        spans: &[Span],
        group: Group,
        depth: u8,
    ) -> Option<Trajectory<'static>> {
        let own = self.members(spans, group);
        let top = own.iter().copied().find(|i| spans[*i].kind == Kind::Agent);
        let is = |kind: Kind| own.iter().any(|i| spans[*i].kind == kind);
        // Tool spans without a model call are still a run, because some exporters record only
        // tools.
        if !is(Kind::Chat) && (matches!(group, Group::Tool(_)) || !is(Kind::Tool) && top.is_none())
        {
            return None;
        }
        let mut builder = Builder::default();
        for &i in &own {
            let span = &spans[i];
            let agent = self.agents[i].and_then(|agent| name_of(&spans[agent]));
            match &span.kind {
                // An SDK and a provider wrapper may both record the same model call; the outer span
                // is used.
                _ if self.inner[i] => builder.odd.add("spans inside a model call"),
                Kind::Chat => builder.chat(span, agent),
                Kind::Tool => {
                    let call = builder.tool(span);
                    let below = (depth < DEEPEST)
                        .then(|| self.run(trace, spans, Group::Tool(i), depth + 1));
                    if let Some(mut child) = below.flatten() {
                        child.tags.push("subagent".into());
                        if let Some(call) = call {
                            child.extra.insert("started_by_call".to_owned(), Value::String(call));
                        }
                        builder.children.push(child);
                    } else if let Some(below) = self.below.get(&i) {
                        builder.odd.add_many("spans below a tool", below.len() as u64);
                    }
                }
                Kind::Agent => {}
                Kind::Other(name) => builder.odd.add(name),
            }
        }
        let mut run = builder.finish();
        run.run_id = match (group, top) {
            (Group::Trace, _) => trace.to_owned().into(),
            (_, Some(top)) => format!("{trace}/{}", spans[top].id).into(),
            (Group::Tool(tool), None) => format!("{trace}/{}", spans[tool].id).into(),
            (_, None) => format!("{trace}/rest").into(),
        };
        if let Some(top) = top {
            of_agent(&spans[top], &mut run);
        }
        if self.twice > 0 && !matches!(group, Group::Tool(_)) {
            run.notes.push(format!("duplicate span ids: {}", self.twice));
        }
        if run.steps.is_empty() {
            run.tags.push("summary_only".into());
        }
        Some(run)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unseen,
    OnPath,
    Done,
}
