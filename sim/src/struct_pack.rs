//! The part of Lua's `struct` library that scripts here use: whole numbers as bytes.

use mlua::{Lua, MultiValue, Table, Value as LuaValue};

/// Makes the library's table.
pub(crate) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, (format, values): (String, MultiValue)| {
        let mut bytes = Vec::new();
        let mut values = values.into_iter();
        for item in items(&format)? {
            let number = match values.next() {
                Some(LuaValue::Number(number)) => number,
                #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
                Some(LuaValue::Integer(number)) => number as f64,
                _ => return Err(mlua::Error::runtime("bad argument to 'pack'")),
            };
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the library truncates as well"
            )]
            let whole = (number as i64).to_le_bytes();
            let mut part = whole[..item.size].to_vec();
            if item.is_big_endian {
                part.reverse();
            }
            bytes.extend(part);
        }
        lua.create_string(bytes)
    })?;
    table.raw_set("pack", pack)?;
    Ok(table)
}

#[derive(Clone, Copy, Debug)]
struct Item {
    size: usize,
    is_big_endian: bool,
}

fn items(format: &str) -> mlua::Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut is_big_endian = false;
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        let size = match letter {
            '>' | '<' => {
                is_big_endian = letter == '>';
                continue;
            }
            ' ' => continue,
            'b' | 'B' => 1,
            'h' | 'H' => 2,
            'l' | 'L' => 8,
            'i' | 'I' => {
                let size = letters.next_if(char::is_ascii_digit);
                size.and_then(|digit| digit.to_digit(10)).unwrap_or(4) as usize
            }
            other => {
                let text = format!("the simulated server packs no '{other}'");
                return Err(mlua::Error::runtime(text));
            }
        };
        if size > 8 {
            return Err(mlua::Error::runtime("integral size is larger than limit"));
        }
        items.push(Item {
            size,
            is_big_endian,
        });
    }
    Ok(items)
}
