//! What a PromQL expression selects, without its functions.

/// Every vector selector of an expression, without its range and offset.
pub(super) fn selectors(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '"') {
        rest = &rest[start..];
        if let Some(text) = rest.strip_prefix('"') {
            rest = text.split_once('"').map_or("", |(_, after)| after);
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let braces = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let is_metric = ["botgate_", "process_"].iter().any(|start| name.starts_with(start)) || name == "up";
        rest = match (is_metric, braces) {
            (true, Some((labels, after))) => {
                found.push(format!("{name}{{{labels}}}"));
                after
            }
            (true, None) => {
                found.push(name.to_owned());
                after
            }
            (false, _) => after,
        };
    }
    found
}

/// The labels that an expression groups by.
pub(super) fn grouped_by(expression: &str) -> Vec<&str> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(',').map(str::trim)).collect()
}

#[test]
fn selectors_are_found_whatever_is_around_them() {
    let expression = "histogram_quantile(0.99, sum by (le, up_to) (rate(botgate_a_bucket{x=\"up\", y=~\"a|b\"}[5m]))) > 5 \
                      * up{job=\"botgate\"} and botgate_b offset 10m or label_x == \"botgate_c\"";
    assert_eq!(selectors(expression), ["botgate_a_bucket{x=\"up\", y=~\"a|b\"}", "up{job=\"botgate\"}", "botgate_b"]);
    assert_eq!(grouped_by(expression), ["le", "up_to"]);
}
