//! Rewrites negations and conditions (`not`, `if`) in keywords that a grammar supports.

use serde_json::{Map, Value, json};

use super::SchemaWalk;

const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

impl<'a> SchemaWalk<'a, '_> {
    /// Schemas that are together equivalent to the keyword. `None` if no grammar can express it.
    pub(super) fn rewritten(
        &mut self,
        key: &str,
        value: &'a Value,
        of: &'a Map<String, Value>,
        at: &str,
    ) -> Option<Vec<Value>> {
        let place = format!("{at}/{key}");
        match key {
            // Nothing is allowed: the schema contradicts itself.
            "not" => Some(vec![
                opposite(value, Some(of)).filter(|other| *other != json!(false))?,
            ]),
            "if" => self.conditional(value, of, at),
            "propertyNames" => {
                let pattern = value.get("pattern").and_then(Value::as_str);
                let is_held = pattern.is_none_or(|pattern| self.patterns.is_regex(pattern));
                Some(vec![names(value, of).filter(|_| is_held)?])
            }
            _ => {
                let map = value.as_object()?;
                let one = |(name, then): (&String, &'a Value)| {
                    let then = match then {
                        Value::Array(names) => json!({"required": names}),
                        schema => {
                            self.schema(schema, &format!("{place}/{}", super::refs::escaped(name)))
                        }
                    };
                    json!({"anyOf": [{"properties": {name: false}}, then]})
                };
                Some(map.iter().map(one).collect())
            }
        }
    }

    /// Either not the condition, or the consequence.
    fn conditional(
        &mut self,
        condition: &'a Value,
        of: &'a Map<String, Value>,
        at: &str,
    ) -> Option<Vec<Value>> {
        let otherwise = opposite(condition, Some(of))?;
        let holds = self.schema(condition, &format!("{at}/if"));
        let mut branch = |key: &str, first: Value| match of.get(key) {
            None => first,
            Some(schema) => json!({"allOf": [first, self.schema(schema, &format!("{at}/{key}"))]}),
        };
        let (then, otherwise) = (branch("then", holds), branch("else", otherwise));
        Some(vec![json!({"anyOf": [then, otherwise]})])
    }
}

/// A schema of all values that do not match this one. `beside` is a schema that the values are known to match.
fn opposite(schema: &Value, beside: Option<&Map<String, Value>>) -> Option<Value> {
    let object = match schema {
        Value::Bool(is) => return Some(Value::Bool(!is)),
        other => other.as_object()?,
    };
    let keys: Vec<&str> = object.keys().map(String::as_str).collect();
    match keys[..] {
        [] => Some(Value::Bool(false)),
        ["type"] => of_other_types(&object["type"]),
        ["const"] => of_other_values(std::slice::from_ref(&object["const"]), beside?),
        ["enum"] => of_other_values(object["enum"].as_array()?, beside?),
        _ => of_other_objects(object, beside),
    }
}

fn of_other_types(types: &Value) -> Option<Value> {
    let listed: Vec<&str> = match types {
        Value::String(one) => vec![one],
        Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    // Non-integer numbers are not a type.
    if listed.contains(&"integer") && !listed.contains(&"number") {
        return None;
    }
    let others = TYPES.iter().filter(|name| !listed.contains(name));
    Some(json!({"type": others.collect::<Vec<_>>()}))
}

/// The remaining values of an enumeration, or of a boolean.
fn of_other_values(values: &[Value], beside: &Map<String, Value>) -> Option<Value> {
    let truths = [Value::Bool(true), Value::Bool(false)];
    let all = match (beside.get("enum"), beside.get("type")) {
        (Some(Value::Array(all)), _) => &all[..],
        (_, Some(Value::String(kind))) if kind == "boolean" => &truths,
        _ => return None,
    };
    let others = all.iter().filter(|value| !values.contains(value));
    Some(json!({"enum": others.collect::<Vec<_>>()})).filter(|schema| schema["enum"] != json!([]))
}

/// For `properties` and `required`: objects that lack a required property, or that have a property that does not
/// match its schema.
fn of_other_objects(
    object: &Map<String, Value>,
    beside: Option<&Map<String, Value>>,
) -> Option<Value> {
    let known = ["type", "properties", "required"];
    let is_about_objects = object.get("type").is_none_or(|kind| kind == "object");
    if !is_about_objects || !object.keys().all(|key| known.contains(&key.as_str())) {
        return None;
    }
    let empty = Map::new();
    let properties = match object.get("properties") {
        Some(properties) => properties.as_object()?,
        None => &empty,
    };
    let required: Vec<&str> = match object.get("required") {
        Some(list) => list
            .as_array()?
            .iter()
            .map(Value::as_str)
            .collect::<Option<_>>()?,
        None => Vec::new(),
    };
    let of_beside = |name: &String| beside?.get("properties")?.get(name)?.as_object();
    let mut options = Vec::new();
    if object.contains_key("type") {
        options.push(of_other_types(&json!("object"))?);
    }
    for name in required {
        options.push(json!({"type": "object", "properties": {name: false}}));
    }
    for (name, schema) in properties {
        let other = opposite(schema, of_beside(name))?;
        options.push(json!({"type": "object", "properties": {name: other}, "required": [name]}));
    }
    Some(json!({"anyOf": options})).filter(|schema| schema["anyOf"] != json!([]))
}

/// Names of properties, if the schema does not declare properties itself: by pattern, or enumerated.
fn names(value: &Value, of: &Map<String, Value>) -> Option<Value> {
    let schema = value.as_object()?;
    let is_text = schema.get("type").is_none_or(|kind| kind == "string");
    let keys: Vec<&str> = schema
        .keys()
        .map(String::as_str)
        .filter(|key| *key != "type")
        .collect();
    // All names are strings.
    if is_text && keys.is_empty() {
        return Some(Value::Bool(true));
    }
    let others = ["properties", "patternProperties", "additionalProperties"];
    if others.iter().any(|key| of.contains_key(*key)) {
        return None;
    }
    match (is_text, &keys[..]) {
        (true, ["pattern"]) => {
            let pattern = schema["pattern"].as_str()?;
            Some(json!({"patternProperties": {pattern: true}, "additionalProperties": false}))
        }
        (true, ["enum"]) => {
            let names = schema["enum"].as_array()?.iter().map(Value::as_str);
            let all = names.map(|name| Some((name?.to_owned(), Value::Bool(true))));
            let properties: Map<String, Value> = all.collect::<Option<_>>()?;
            Some(json!({"properties": properties, "additionalProperties": false}))
        }
        _ => None,
    }
}
