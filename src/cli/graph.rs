//! A dataflow's nodes as a picture: text, DOT, Mermaid.

use std::fmt::Write;

use clap::ValueEnum;

use crate::plan::Plan;

/// How the picture is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// A line a node.
    Text,
    /// For Graphviz.
    Dot,
    /// For Mermaid, as in Markdown.
    Mermaid,
}

/// The nodes of `plan`.
pub(super) fn graph(plan: &Plan, form: Form) -> String {
    match form {
        Form::Text => plan.describe(),
        Form::Dot => dot(plan),
        Form::Mermaid => mermaid(plan),
    }
}

/// <https://graphviz.org/doc/info/lang.html>
fn dot(plan: &Plan) -> String {
    let mut text = "digraph dataflow {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for (index, node) in plan.nodes.iter().enumerate() {
        let label = node.label.replace('\\', "\\\\").replace('"', "\\\"");
        let label = if label.is_empty() { String::new() } else { format!("\\n{label}") };
        let shape = if is_end(node.kind) { ", shape=cylinder" } else { "" };
        write(
            &mut text,
            format_args!("  n{index} [label=\"{} {}{label}\"{shape}];", index, node.kind),
        );
    }
    for (from, to) in edges(plan) {
        write(&mut text, format_args!("  n{from} -> n{to};"));
    }
    text + "}\n"
}

/// <https://mermaid.js.org/syntax/flowchart.html>
fn mermaid(plan: &Plan) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for (index, node) in plan.nodes.iter().enumerate() {
        let label: String = node.label.chars().map(entity).collect();
        let label = if label.is_empty() { String::new() } else { format!("<br>{label}") };
        let (open, close) = if is_end(node.kind) { ("[(", ")]") } else { ("[", "]") };
        let kind = node.kind;
        write(&mut text, format_args!("  n{index}{open}\"{index} {kind}{label}\"{close}"));
    }
    for (from, to) in edges(plan) {
        write(&mut text, format_args!("  n{from} --> n{to}"));
    }
    text
}

/// A character of a label, as Mermaid takes it.
fn entity(c: char) -> String {
    match c {
        c if c.is_alphanumeric() || "_-. /:".contains(c) => c.to_string(),
        c => format!("#{};", u32::from(c)),
    }
}

fn is_end(kind: &str) -> bool {
    matches!(kind, "source" | "sink")
}

fn edges(plan: &Plan) -> impl Iterator<Item = (u32, usize)> {
    let nodes = plan.nodes.iter().enumerate();
    nodes.flat_map(|(to, node)| node.inputs.iter().map(move |from| (from.0, to)))
}

fn write(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Node, NodeId};

    fn plan() -> Plan {
        let node = |kind, label: &str, inputs: &[u32]| Node {
            kind,
            label: label.to_owned(),
            inputs: inputs.iter().copied().map(NodeId).collect(),
        };
        let nodes = vec![
            node("source", "orders", &[]),
            node("filter", "", &[0]),
            node("sink", "a \"b\"", &[1]),
        ];
        Plan { nodes, ..Plan::default() }
    }

    #[test]
    fn each_form_names_all_nodes_and_edges() {
        assert_eq!(
            graph(&plan(), Form::Text),
            "  0 source `orders`\n  1 filter <- 0\n  2 sink `a \"b\"` <- 1\n"
        );
        assert_eq!(
            graph(&plan(), Form::Dot),
            "digraph dataflow {\n  rankdir=LR;\n  node [shape=box];\n  \
             n0 [label=\"0 source\\norders\", shape=cylinder];\n  n1 [label=\"1 filter\"];\n  \
             n2 [label=\"2 sink\\na \\\"b\\\"\", shape=cylinder];\n  n0 -> n1;\n  n1 -> n2;\n}\n"
        );
        assert_eq!(
            graph(&plan(), Form::Mermaid),
            "flowchart LR\n  n0[(\"0 source<br>orders\")]\n  n1[\"1 filter\"]\n  \
             n2[(\"2 sink<br>a #34;b#34;\")]\n  n0 --> n1\n  n1 --> n2\n"
        );
    }
}
