//! Bodies of requests, grown from the server's description of its routes: right but for a few fields.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

use crate::{edits, schema};

const ROLES: [&str; 7] = [
    "system",
    "user",
    "assistant",
    "tool",
    "developer",
    "function",
    "",
];

/// The smallest PNG: one black pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";

/// A body for a route described by `described`, the schema of an object or of a list of them.
pub fn grow(described: &Value, input: &mut Unstructured<'_>) -> Result<Value> {
    if described["type"] == "array" {
        let n = input.int_in_range(0..=4)?;
        let items: Result<Vec<Value>> = (0..n).map(|_| grow(&described["items"], input)).collect();
        return Ok(items?.into());
    }
    let Some(properties) = described["properties"].as_object() else {
        return Ok(json!({}));
    };
    let mut body: Map<String, Value> = properties
        .keys()
        .filter_map(|name| Some((name.clone(), right(name)?)))
        .collect();
    let names: Vec<&String> = properties.keys().collect();
    for _ in 0..input.int_in_range(0..=3)? {
        let name = *input.choose(&names)?;
        let value = value_of(name, &properties[name], input)?;
        body.insert(name.clone(), value);
    }
    let mut body = Value::Object(body);
    if input.ratio(1, 4)? {
        edits::edit_json(&mut body, input)?;
    }
    Ok(body)
}

fn right(name: &str) -> Option<Value> {
    Some(match name {
        "model" => "m".into(),
        "messages" => json!([{"role": "user", "content": "hi"}]),
        "input" | "prompt" | "content" | "query" | "text_1" | "text_2" | "input_prefix"
        | "input_suffix" => "hi".into(),
        "documents" => json!(["a", "b"]),
        "id" | "scale" => 0.into(),
        "tokens" => json!([5, 6]),
        "max_tokens" | "max_output_tokens" => 4.into(),
        "options" => json!({"num_predict": 4}),
        _ => return None,
    })
}

fn value_of(name: &str, described: &Value, input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match name {
        "messages" => list(input, message)?,
        "input" => match input.int_in_range(0..=2u8)? {
            0 => list(input, item)?,
            1 => list(input, id)?,
            _ => input.arbitrary::<&str>()?.into(),
        },
        "tokens" | "prompt" => list(input, id)?,
        "include" => json!(["message.output_text.logprobs"]),
        "system" => list(input, part)?,
        "tools" => list(input, function)?,
        "tool_choice" => match input.ratio(1, 2)? {
            true => (*input.choose(&["auto", "none", "required", "any"])?).into(),
            false => json!({"type": "function", "function": {"name": "f"}, "name": "f"}),
        },
        "response_format" => format(input)?,
        "text" | "output_config" => json!({"format": format(input)?}),
        "format" => schema::schema(input)?,
        "structured_outputs" => match input.int_in_range(0..=2u8)? {
            0 => json!({"grammar": schema::lark(input)?}),
            1 => json!({"regex": schema::pattern(input)?}),
            _ => json!({"json": schema::schema(input)?}),
        },
        "logit_bias" => json!({id(input)?.to_string(): input.arbitrary::<f32>()?}),
        "images" => json!([PIXEL]),
        "stop" => json!([input.arbitrary::<&str>()?]),
        _ => match described["type"].as_str() {
            Some("integer") => input.arbitrary::<i64>()?.into(),
            Some("number") => json!(input.arbitrary::<f64>()?),
            Some("boolean") => input.arbitrary::<bool>()?.into(),
            Some("string") => input.arbitrary::<&str>()?.into(),
            _ => json!({input.arbitrary::<&str>()?: input.arbitrary::<i8>()?}),
        },
    })
}

fn list(
    input: &mut Unstructured<'_>,
    one: fn(&mut Unstructured<'_>) -> Result<Value>,
) -> Result<Value> {
    let n = input.int_in_range(0..=4)?;
    let values: Result<Vec<Value>> = (0..n).map(|_| one(input)).collect();
    Ok(values?.into())
}

fn id(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.ratio(1, 2)? {
        true => input.int_in_range(0..=300u32)?.into(),
        false => input.arbitrary::<u32>()?.into(),
    })
}

fn message(input: &mut Unstructured<'_>) -> Result<Value> {
    let content = match input.ratio(1, 2)? {
        true => input.arbitrary::<&str>()?.into(),
        false => list(input, part)?,
    };
    let mut message = json!({"role": *input.choose(&ROLES)?, "content": content});
    if input.ratio(1, 4)? {
        let arguments = *input.choose(&["", "{", "{}", "[1]", "42", "{\"a\":{\"b\":null}}"])?;
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
        message["tool_calls"] = json!([call]);
    }
    Ok(message)
}

fn part(input: &mut Unstructured<'_>) -> Result<Value> {
    let url = format!("data:image/png;base64,{PIXEL}");
    Ok(match input.int_in_range(0..=8u8)? {
        0 | 1 => json!({"type": "text", "text": input.arbitrary::<&str>()?}),
        2 => json!({"type": "image_url", "image_url": {"url": url}}),
        3 => json!({"type": "input_image", "image_url": url}),
        4 => {
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}})
        }
        5 => {
            json!({"type": "tool_use", "id": "c", "name": "f", "input": {"a": input.arbitrary::<i8>()?}})
        }
        6 => {
            json!({"type": "tool_result", "tool_use_id": "c", "content": input.arbitrary::<&str>()?})
        }
        7 => json!({"type": "thinking", "thinking": input.arbitrary::<&str>()?, "signature": ""}),
        _ => json!({"type": input.arbitrary::<&str>()?}),
    })
}

fn item(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.int_in_range(0..=3u8)? {
        0 => {
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": input.arbitrary::<&str>()?})
        }
        1 => json!({"type": "function_call_output", "call_id": "c", "output": list(input, part)?}),
        2 => json!({"type": "reasoning", "summary": []}),
        _ => message(input)?,
    })
}

fn function(input: &mut Unstructured<'_>) -> Result<Value> {
    let name = match input.ratio(3, 4)? {
        true => "f",
        false => input.arbitrary::<&str>()?,
    };
    let parameters = schema::schema(input)?;
    Ok(match input.int_in_range(0..=3u8)? {
        0 => json!({"name": name, "input_schema": parameters}),
        1 => json!({"type": "function", "name": name, "parameters": parameters}),
        2 => json!({"type": input.arbitrary::<&str>()?, "name": name}),
        _ => {
            json!({"type": "function", "function": {"name": name, "parameters": parameters, "strict": input.arbitrary::<bool>()?}})
        }
    })
}

fn format(input: &mut Unstructured<'_>) -> Result<Value> {
    let made = schema::schema(input)?;
    Ok(match input.int_in_range(0..=2u8)? {
        0 => json!({"type": "json_schema", "name": "x", "schema": made}),
        1 => json!({"type": *input.choose(&["json_object", "text", "grammar"])?}),
        _ => json!({"type": "json_schema", "json_schema": {"name": "x", "schema": made}}),
    })
}
