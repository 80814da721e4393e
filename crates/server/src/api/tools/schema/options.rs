//! Alternatives in a schema.

use serde_json::Value;

/// Whether it is evident that no value matches two of these schemas: their types differ, or a property that both
/// require has different values.
pub(super) fn are_disjoint(options: &[Value]) -> bool {
    let pairs = options.iter().enumerate();
    pairs
        .into_iter()
        .all(|(i, a)| options[i + 1..].iter().all(|b| differ(a, b)))
}

fn differ(a: &Value, b: &Value) -> bool {
    let kind = |schema: &Value| match schema.get("type").and_then(Value::as_str) {
        Some("integer") => Some("number".to_owned()),
        other => other.map(str::to_owned),
    };
    if let (Some(a), Some(b)) = (kind(a), kind(b))
        && a != b
    {
        return true;
    }
    if let (Some(a), Some(b)) = (values(a), values(b)) {
        return !a.iter().any(|value| b.contains(value));
    }
    let required = |schema: &Value, name: &String| {
        let list = schema.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| one == name.as_str()))
    };
    let properties = |schema: &Value| schema.get("properties").and_then(Value::as_object).cloned();
    let (Some(of_a), Some(of_b)) = (properties(a), properties(b)) else {
        return false;
    };
    let is_object = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "object");
    is_object(a)
        && is_object(b)
        && of_a.iter().any(|(name, schema)| {
            let other = of_b.get(name).and_then(values);
            let both = values(schema).zip(other);
            required(a, name)
                && required(b, name)
                && both.is_some_and(|(a, b)| !a.iter().any(|value| b.contains(value)))
        })
}

/// The enumerated values of a schema.
fn values(schema: &Value) -> Option<Vec<Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => Some(vec![one.clone()]),
        (None, Some(Value::Array(list))) => Some(list.clone()),
        _ => None,
    }
}
