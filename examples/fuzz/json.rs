//! Feeds mutated JSON to the decoder of documents and compares it with serde_json's own values.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tidegate::codec::Document;

use crate::random::Random;

/// What mutations begin with.
const SEEDS: [&str; 14] = [
    r#"{"order_id":123456,"customer":"customer-01234","status":"shipped","amount":-12.50,"at":null}"#,
    r#"{"a":1.5e-7,"b":[true,false,null,{"c":[]}],"a":{"":" \" \\ \/ \b\f\n\r\t"}}"#,
    r#" { "s" : "\ud83d\ude42" , "t" : "\u0000\u00e6" , "æ🙂" : "æ🙂" } "#,
    r#"{"half":"\ud83d","low":"\ude42","both":"\ude42\ud83d"}"#,
    r#"{"\u0061":0,"a":-0,"b":0e0,"c":1E+9,"d":123456789012345678901234567890}"#,
    r#"{"deep":[[[[[[[[[[[[[[[[[[[[{"x":{"y":{"z":{}}}}]]]]]]]]]]]]]]]]]]]]}"#,
    "{}",
    "[]",
    "null",
    "{\"a\":01}",
    "{\"a\":1.}",
    "{\"a\":NaN}",
    "{\"a\":1}{",
    "\u{feff}{}",
];

/// What mutations put in.
const TOKENS: [&str; 38] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "\\udc00",
    "\\u0000",
    "\\n",
    "\\x",
    "0",
    "00",
    "-",
    "+",
    ".",
    "e",
    "E-",
    "1e999",
    "9007199254740993",
    "true",
    "false",
    "null",
    "nul",
    "Infinity",
    " ",
    "\t",
    "\r\n",
    "\u{b}",
    "\u{a0}",
    "/**/",
    "//",
    "\u{0}",
    "æ",
    "\"a\":",
];

fn mutate(random: &mut Random, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut input = pool[random.below(pool.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(8)).min(input.len());
        match random.below(7) {
            0 if at < input.len() => input[at] = random.next() as u8,
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => drop(input.drain(at..end)),
            3 => {
                let copy = input[at..end].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            4 => {
                let other = &pool[random.below(pool.len())];
                let from = random.below(other.len() + 1);
                let upto = (from + random.below(24)).min(other.len());
                input.splice(at..at, other[from..upto].iter().copied());
            }
            5 => input.truncate(end),
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                input.splice(at..at, token.bytes());
            }
        }
    }
    input.truncate(4096);
    input
}

/// What serde_json makes of it, where it takes it: the value of each name.
fn reference(input: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(input) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// What is wrong with `input`, and whether it is accepted.
fn compare(input: &[u8]) -> Result<bool, String> {
    let document = Document::parse(input);
    let Some(expected) = reference(input) else {
        let Ok(document) = document else { return Ok(false) };
        // Legal as syntax, but not as a value: half a surrogate pair, a number beyond a double, or
        // nesting beyond serde_json's limit. With those taken out serde_json must take it as well.
        let fields = document.fields().map(|(name, value)| {
            let name = serde_json::to_string(name).expect("a text");
            format!("{name}:{}", tame(value.0))
        });
        let tamed = format!("{{{}}}", fields.collect::<Vec<_>>().join(","));
        return match serde_json::from_str::<Value>(&tamed) {
            Ok(_) => Ok(true),
            Err(error) if error.to_string().starts_with("recursion limit") => Ok(true),
            Err(error) => Err(format!("accepted, where serde_json says {error}")),
        };
    };
    let document = document.map_err(|refusal| format!("refused: {}", refusal.reason))?;
    for (name, value) in &expected {
        let found = document.get(name).ok_or_else(|| format!("{name:?} is absent"))?;
        if serde_json::from_str::<Value>(found.0).ok().as_ref() != Some(value) {
            return Err(format!("{name:?} is {}, not {value}", found.0));
        }
    }
    if document.fields().any(|(name, _)| !expected.contains_key(name)) {
        return Err("a field too many".to_owned());
    }
    let written = serde_json::to_string(&document).map_err(|error| error.to_string())?;
    let back: Document = serde_json::from_str(&written).map_err(|error| error.to_string())?;
    if serde_json::to_string(&back).ok() != Some(written) {
        return Err("it does not come back from its serialized form".to_owned());
    }
    Ok(true)
}

/// A JSON value of the same syntax that means something to serde_json.
fn tame(json: &str) -> String {
    let mut tamed = String::new();
    let mut chars = json.chars().peekable();
    let (mut in_string, mut in_exponent) = (false, false);
    while let Some(c) = chars.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                tamed.push(c);
                let escaped = chars.next().unwrap_or_default();
                tamed.push(escaped);
                if escaped == 'u' {
                    let digits: String = chars.by_ref().take(4).collect();
                    let surrogate = digits.to_ascii_lowercase().starts_with('d');
                    tamed.push_str(if surrogate { "0061" } else { &digits });
                }
                continue;
            }
            'e' | 'E' if !in_string && tamed.ends_with(|c: char| c.is_ascii_digit()) => {
                in_exponent = true;
                tamed.push(c);
                if let Some(sign) = chars.next_if(|c| "+-".contains(*c)) {
                    tamed.push(sign);
                }
                continue;
            }
            '0'..='9' if in_exponent => {
                tamed.push('0');
                continue;
            }
            _ => in_exponent = false,
        }
        tamed.push(c);
    }
    tamed
}

/// Runs for `limit`; fails where they differ.
pub fn run(seed: u64, limit: Duration) -> ExitCode {
    let mut random = Random(seed);
    let mut pool: Vec<Vec<u8>> = SEEDS.map(|seed| seed.as_bytes().to_vec()).to_vec();
    let (mut inputs, mut accepted) = (0_u64, 0_u64);
    let began = Instant::now();
    while began.elapsed() < limit {
        for _ in 0..1000 {
            let input = mutate(&mut random, &pool);
            inputs += 1;
            match compare(&input) {
                Err(why) => {
                    println!("{why}\n{}\n{input:?}", String::from_utf8_lossy(&input));
                    return ExitCode::FAILURE;
                }
                Ok(false) => {}
                Ok(true) => {
                    accepted += 1;
                    // What is legal is a good place to go on from.
                    if pool.len() < 4096 {
                        pool.push(input);
                    } else {
                        let at = SEEDS.len() + random.below(pool.len() - SEEDS.len());
                        pool[at] = input;
                    }
                }
            }
        }
    }
    println!("inputs={inputs} accepted={accepted} seed={seed} elapsed={:?}", began.elapsed());
    ExitCode::SUCCESS
}
