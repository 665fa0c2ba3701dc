//! What the server refuses costs itself and nothing else.

use super::super::testing::{Row, chunk, lane};
use super::rig::{Rig, sink};
use crate::error::Kind;
use crate::record::Offset;

const CHECKED: &str = "create table @.t (k bigint, v text, n integer check (n >= 0))";

fn rejects(rig: &mut Rig) -> Vec<String> {
    rig.place.lines("select \"offset\", \"column\", sqlstate from #.rejects order by id")
}

#[test]
fn each_row_that_the_server_refuses_is_set_aside_alone() {
    let mut rig = Rig::new("refuse", CHECKED, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let bad = |k| [0, 7, 8, 4999, 9999].contains(&k);
    let rows: Vec<Row> =
        (0..10_000).map(|k| Row::put(k, Some("x"), Some(if bad(k) { -1 } else { 1 }))).collect();
    rig.write(&mut *writer, &rows).expect("the good ones are written");
    assert_eq!(rig.place.lines("select count(*), sum(n) from @.t"), ["(9995,9995)"]);
    assert_eq!(rig.slices(), ["10000/1 10000 9995 0 9995"]);
    assert_eq!(
        rejects(&mut rig),
        ["(0,,23514)", "(7,,23514)", "(8,,23514)", "(4999,,23514)", "(9999,,23514)"]
    );
    // And once more, with refusals expected.
    rig.write(&mut *writer, &rows).expect("the good ones are written");
    assert_eq!(rig.place.lines("select count(*) from @.t"), ["(19990)"]);
    assert_eq!(rejects(&mut rig).len(), 10);
}

#[test]
fn a_flush_in_which_all_rows_are_bad_moves_the_position() {
    let mut rig = Rig::new("all_bad", CHECKED, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let rows: Vec<Row> = (0..5).map(|k| Row::put(k, None, Some(-1))).collect();
    rig.write(&mut *writer, &rows).expect("nothing but rejects");
    assert_eq!(rig.slices(), ["5/1 5 0 0 0"]);
    assert_eq!(rejects(&mut rig).len(), 5);
}

#[test]
fn a_refused_survivor_gives_way_to_its_predecessor() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer default 7 check (n >= 0))";
    let mut rig = Rig::new("survivor", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    rig.write(
        &mut *writer,
        &[
            Row::put(1, Some("first"), Some(1)),
            Row::put(1, Some("second"), Some(2)),
            Row::put(1, Some("bad"), Some(-1)),
            Row::put(2, Some("bad"), Some(-1)),
            Row::put(2, Some("good"), Some(3)),
            Row::put(3, Some("good"), Some(4)),
            Row::delete(3),
            Row::put(3, Some("bad"), Some(-4)),
        ],
    )
    .expect("write");
    assert_eq!(rig.rows(), ["(1,second,2)", "(2,good,3)"]);
    // The bad row of key 2 was superseded before anyone asked the server: collapsed.
    assert_eq!(rejects(&mut rig), ["(2,,23514)", "(7,,23514)"]);
    assert_eq!(rig.slices(), ["8/1 8 3 3 3"]);
}

#[test]
fn rows_refused_for_their_neighbours_are_tried_again_after_them() {
    // The children's table is written first; the parent comes with the second.
    let ddl = "create table @.p (k bigint primary key, v text, n integer check (n >= 0));
               create table @.t (k bigint primary key references @.p, v text unique, n integer)";
    let mut rig = Rig::new("parents", ddl, |p| vec![sink(p, "t").key("k"), sink(p, "p").key("k")]);
    let mut writer = rig.begin();
    let children = [Row::put(1, Some("a"), None), Row::put(2, Some("b"), None)];
    let parents = [Row::put(1, None, Some(0)), Row::put(2, None, Some(-1))];
    let flush = rig.flush(&[&[&children], &[&parents]]);
    writer.write(flush).expect("write");
    assert_eq!(rig.rows(), ["(1,a,)"]);
    assert_eq!(rig.place.lines("select k from @.p"), ["(1)"]);
    let mut stored = rejects(&mut rig);
    stored.sort();
    assert_eq!(stored, ["(1,,23503)", "(1,,23514)"]);

    // A unique value that moves from key 1 to key 3.
    let flush = rig.flush(&[
        &[&[Row::put(3, Some("a"), None), Row::put(1, Some("c"), None)]],
        &[&[Row::put(3, None, Some(1))]],
    ]);
    writer.write(flush).expect("write");
    assert_eq!(rig.rows(), ["(1,c,)", "(3,a,)"]);
}

#[test]
fn columns_of_a_row_that_would_be_refused_do_not_count() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer check (n > 0))";
    let mut rig = Rig::new("columns", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let rows = [
        Row::put(1, Some("lost"), Some(-1)),
        Row::put(1, None, Some(3)).without_v(),
        Row::put(2, Some("kept"), Some(1)),
        Row::put(2, None, Some(3)).without_v(),
        Row::put(2, None, Some(4)).without_v(),
    ];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.rows(), ["(1,,3)", "(2,kept,4)"]);
    assert_eq!(rejects(&mut rig), ["(0,,23514)"]);
    assert_eq!(rig.slices(), ["5/1 5 2 2 2"]);
}

#[test]
fn unique_values_that_move_from_key_to_key_and_on_are_taken_in_their_order() {
    let ddl = "create table @.t (k bigint primary key, v text unique, n integer check (n < 9));
               insert into @.t values (1, 'A'), (2, 'B'), (3, 'C')";
    let mut rig = Rig::new("moving", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let put = |k, v| Row::put(k, Some(v), None).without_n();
    let rows = [
        put(3, "X"),
        Row::put(1, Some("C"), Some(5)),
        put(2, "Y"),
        put(1, "B"),
        put(3, "W"),
        put(4, "C"),
        Row::put(5, None, Some(9)),
        put(2, "Z"),
    ];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.rows(), ["(1,B,5)", "(2,Z,)", "(3,W,)", "(4,C,)"]);
    assert_eq!(rejects(&mut rig), ["(6,,23514)"]);
}

#[test]
fn rows_of_a_key_wait_together_for_their_parents() {
    // The first row's parent comes with the second table, the second row's is there.
    let ddl = "create table @.p (k bigint primary key, v text, n integer);
               insert into @.p values (8);
               create table @.t (k bigint primary key, v text, n integer references @.p (k))";
    let mut rig = Rig::new("wait", ddl, |p| vec![sink(p, "t").key("k"), sink(p, "p").key("k")]);
    let mut writer = rig.begin();
    let children = [Row::put(1, Some("x"), Some(9)), Row::put(1, None, Some(8)).without_v()];
    let flush = rig.flush(&[&[&children], &[&[Row::put(9, None, None)]]]);
    writer.write(flush).expect("write");
    assert_eq!(rig.rows(), ["(1,x,8)"]);
    assert!(rejects(&mut rig).is_empty());
}

#[test]
fn a_refused_row_of_a_view_with_triggers_costs_itself() {
    let ddl = "create table @.b (k bigint primary key, v text, n integer);
               create view @.t as select * from @.b;
               create function @.put() returns trigger language plpgsql as $$ begin
                 if new.n = 7 then raise exception 'no sevens'; end if;
                 if tg_op = 'INSERT' then insert into @.b values (new.k, new.v, new.n);
                 else update @.b set v = new.v, n = new.n where k = new.k; end if;
                 return new; end $$;
               create trigger put instead of insert or update on @.t
                 for each row execute function @.put()";
    let mut rig = Rig::new("view", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let put = |k, n| Row::put(k, None, Some(n));
    rig.write(&mut *writer, &[put(1, 1), put(2, 7), put(1, 7), put(1, 2)]).expect("write");
    assert_eq!(rig.rows(), ["(1,,2)"]);
    assert_eq!(rejects(&mut rig), ["(1,,P0001)", "(2,,P0001)"]);
}

#[test]
fn rows_that_refer_to_their_own_table_are_put_and_deleted_in_their_order() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer,
                 id integer generated always as (k) stored unique);
               alter table @.t add foreign key (n) references @.t (id) on delete cascade";
    let put = |k, n| Row::put(k, None, n);
    let seen = "select k, n from @.t order by k";

    let mut rig = Rig::new("cascade", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let rows = [put(3, None), put(1, Some(3)), Row::delete(3), put(1, None), put(3, None)];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.place.lines(seen), ["(1,)", "(3,)"]);
    // A child whose parent goes, and comes again.
    rig.write(&mut *writer, &[put(1, Some(3)), Row::delete(3), put(3, None)]).expect("write");
    assert_eq!(rig.place.lines(seen), ["(3,)"]);
    assert!(rejects(&mut rig).is_empty());

    let plain = ddl.replace(" on delete cascade", "");
    let mut rig = Rig::new("self", &plain, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[put(3, None), put(2, Some(3)), Row::delete(3)]).expect("write");
    assert_eq!(rig.place.lines(seen), ["(2,3)", "(3,)"]);
    assert_eq!(rejects(&mut rig), ["(2,,23503)"]);
}

#[test]
fn a_trigger_sees_every_row_in_its_order() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer);
               create function @.few() returns trigger language plpgsql as $$ begin
                 if (select count(*) from @.t where k <> new.k) >= 2 then raise 'full'; end if;
                 return new; end $$;
               create trigger few before insert on @.t for each row execute function @.few();
               create function @.done() returns trigger language plpgsql as $$ begin
                 if old.v = 'done' and new.v <> 'done' then raise 'it is done'; end if;
                 return new; end $$;
               create trigger done before update on @.t for each row execute function @.done()";
    let mut rig = Rig::new("seen", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let put = |k, v| Row::put(k, Some(v), Some(1));
    let rows = [
        put(1, "new"),
        put(2, "done"),
        put(3, "new"),
        put(1, "newer").without_n(),
        put(2, "not done"),
        Row::put(2, None, Some(5)).without_v(),
    ];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.rows(), ["(1,newer,1)", "(2,done,5)"]);
    assert_eq!(rejects(&mut rig), ["(2,,P0001)", "(4,,P0001)"]);
}

#[test]
fn the_first_spelling_of_a_key_stays_as_updates_leave_it() {
    let ddl = "create table @.t (k numeric primary key, v text, n integer)";
    let mut rig = Rig::new("spelled", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    // The tiny encoder writes bigints: as a numeric, 1 is zero with one digit behind the point and 2 zero with two.
    rig.write(&mut *writer, &[Row::put(1, Some("a"), None), Row::put(2, Some("b"), None)])
        .expect("write");
    assert_eq!(rig.place.lines("select k, v from @.t"), ["(0.0,b)"]);
    rig.write(&mut *writer, &[Row::delete(1), Row::put(2, Some("c"), None)]).expect("write");
    assert_eq!(rig.place.lines("select k, v from @.t"), ["(0.00,c)"]);
}

#[test]
fn constraints_that_wait_for_commit_name_their_rows() {
    let ddl = "create table @.p (k bigint primary key);
               insert into @.p values (1), (2), (3);
               create table @.t (k bigint references @.p deferrable initially deferred, v text,
                                 n integer unique deferrable initially deferred)";
    let mut rig = Rig::new("deferred", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let put = |k, n| Row::put(k, None, Some(n));
    rig.write(&mut *writer, &[put(1, 1), put(9, 2), put(2, 1), put(3, 2), put(8, 8)])
        .expect("write");
    assert_eq!(rig.rows(), ["(1,,1)", "(3,,2)"]);
    assert_eq!(rejects(&mut rig), ["(1,,23503)", "(2,,23505)", "(4,,23503)"]);
}

#[test]
fn a_table_that_refuses_everything_ends_the_run() {
    let mut rig = Rig::keyed("broken");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[Row::put(1, None, None)]).expect("write");
    rig.place.execute("alter table @.t drop constraint t_pkey");
    let error = rig.write(&mut *writer, &[Row::put(2, None, None)]).expect_err("no arbiter");
    assert!(matches!(error.kind(), Kind::Sink | Kind::Config), "{error}");
    assert!(error.to_string().contains("unique index"), "{error}");
    assert!(rejects(&mut rig).is_empty());
}

#[test]
fn what_a_trigger_raises_is_the_rows_fault_under_any_code() {
    let ddl = "create table @.t (k bigint, v text, n integer);
               create function @.no() returns trigger language plpgsql as $$ begin
                 if new.n = 1 then raise exception 'no ones' using errcode = '42501'; end if;
                 if new.n = 2 then return null; end if;
                 return new; end $$;
               create trigger no before insert on @.t for each row execute function @.no()";
    let mut rig = Rig::new("trigger", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[Row::put(1, None, Some(1))]).expect("write");
    rig.write(&mut *writer, &[Row::put(2, None, Some(2)), Row::put(3, None, Some(3))])
        .expect("write");
    assert_eq!(rig.rows(), ["(3,,3)"]);
    assert_eq!(rejects(&mut rig), ["(0,,42501)"]);
    // A row that a trigger drops was written, as far as anyone can tell.
    assert_eq!(rig.slices(), ["3/2 3 2 0 2"]);
}

#[test]
fn a_trigger_that_refuses_a_statement_before_its_first_row_refuses_the_rows() {
    let ddl = "create table @.t (k bigint, v text, n integer);
               create table @.closed (yes boolean);
               create function @.no() returns trigger language plpgsql as $$ begin
                 if exists (select from @.closed) then raise 'closed'; end if;
                 return null; end $$;
               create trigger no before insert on @.t execute function @.no()";
    let mut rig = Rig::new("statement", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let put = |k| Row::put(k, None, None);
    rig.write(&mut *writer, &[put(1), put(2)]).expect("write");
    rig.place.execute("insert into @.closed values (true)");
    rig.write(&mut *writer, &[put(3), put(4)]).expect("the run goes on");
    assert_eq!(rejects(&mut rig), ["(2,,P0001)", "(3,,P0001)"]);
    rig.place.execute("truncate @.closed");
    rig.write(&mut *writer, &[put(5)]).expect("and on");
    assert_eq!(rig.rows(), ["(1,,)", "(2,,)", "(5,,)"]);
    assert_eq!(rig.slices(), ["5/3 5 3 0 3"]);
}

#[test]
fn a_temporary_code_that_a_trigger_raises_for_ever_is_the_rows_fault() {
    let ddl = "create table @.t (k bigint, v text, n integer);
               create function @.no() returns trigger language plpgsql as $$ begin
                 if new.n = 1 then raise exception 'later' using errcode = '40001'; end if;
                 return new; end $$;
               create trigger no before insert on @.t for each row execute function @.no()";
    let mut rig = Rig::new("for_ever", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let rows = [Row::put(1, None, Some(0)), Row::put(2, None, Some(1)), Row::put(3, None, Some(2))];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.rows(), ["(1,,0)", "(3,,2)"]);
    assert_eq!(rejects(&mut rig), ["(1,,40001)"]);
}

#[test]
fn a_dropped_row_does_not_hide_that_a_table_refuses_everything() {
    let ddl = "create table @.t (k bigint, v text, n integer);
               create function @.no() returns trigger language plpgsql as $$ begin
                 if new.n = 1 then return null; end if;
                 perform 1 from missing_table;
                 return new; end $$;
               create trigger no before insert on @.t for each row execute function @.no()";
    let mut rig = Rig::new("hidden", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let rows = [Row::put(1, None, Some(0)), Row::put(2, None, Some(1)), Row::put(3, None, Some(2))];
    let error = rig.write(&mut *writer, &rows).expect_err("the trigger is broken");
    assert!(error.to_string().contains("missing_table"), "{error}");
    assert!(rejects(&mut rig).is_empty());
}

#[test]
fn a_row_that_a_trigger_drops_leaves_its_predecessor() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer);
               create function @.tame() returns trigger language plpgsql as $$ begin
                 if new.n < 0 then return null; end if;
                 return new; end $$;
               create trigger tame before insert or update on @.t
                 for each row execute function @.tame()";
    let mut rig = Rig::new("dropped", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let put = |k, n| Row::put(k, None, Some(n));
    let rows = [put(1, 3), put(1, -5), put(2, -1), put(4, 9), put(5, 1), put(5, 2), put(5, -2)];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.rows(), ["(1,,3)", "(4,,9)", "(5,,2)"]);
    assert!(rejects(&mut rig).is_empty());
}

#[test]
fn columns_may_widen_come_and_go_while_rows_are_under_way() {
    let mut rig =
        Rig::new("shape", "create table @.t (k bigint, v text, n integer)", |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[Row::put(1, Some("a"), Some(1))]).expect("write");
    rig.place.execute("alter table @.t alter n type bigint, add w text default 'w'");
    // Encoded for the old shape: four bytes for `n`.
    rig.write(&mut *writer, &[Row::put(2, Some("b"), Some(2))]).expect("write");
    assert_eq!(rig.rows(), ["(1,a,1,w)", "(2,b,2,w)"]);
    assert!(rejects(&mut rig).is_empty());
    rig.place.execute("alter table @.t drop column v");
    let rows = [Row::put(3, Some("c"), Some(3)), Row::put(4, None, Some(4)).without_v()];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.place.lines("select k from @.t order by k"), ["(1)", "(2)", "(4)"]);
    assert_eq!(rejects(&mut rig), ["(2,v,42703)"]);
}

/// A type whose binary form is as long takes the bytes of another without a word: `bigint` read as `double
/// precision` is almost nothing, as `numeric` it is zero.
#[test]
fn a_column_that_becomes_a_type_of_the_same_width_is_never_given_the_old_types_bytes() {
    let types = ["real", "numeric", "numeric(12,2)", "bigint", "double precision", "text", "date"];
    for (at, ty) in types.iter().enumerate() {
        for (name, key) in [("append", None), ("keyed", Some("k"))] {
            // A session from before the change has its staging tables, one from after it has not.
            for connected in [true, false] {
                let ddl = "create table @.t (k bigint primary key, v text, n integer)";
                let test = format!("retyped_{name}_{at}_{connected}");
                let mut rig = Rig::new(&test, ddl, |p| match key {
                    None => vec![sink(p, "t")],
                    Some(key) => vec![sink(p, "t").key(key)],
                });
                let mut writer = rig.begin();
                if connected {
                    // A key that comes again is merged, by a staging table.
                    for _ in 0..if key.is_some() { 2 } else { 1 } {
                        rig.write(&mut *writer, &[Row::put(1, None, Some(5))]).expect("write");
                    }
                }
                let is_date = *ty == "date";
                let how = if is_date { "'2000-01-01'::date + n" } else { "n" };
                rig.place
                    .execute(&format!("alter table @.t alter n type {ty} using ({how})::{ty}"));
                let rows = [Row::put(2, None, Some(499)), Row::put(3, None, Some(7))];
                let written = rig.write(&mut *writer, &rows);
                if is_date {
                    // No integer goes into a date, but by its own bytes.
                    let error = written.expect_err("a statement that no row satisfies");
                    assert!(error.to_string().contains("42804"), "{error}");
                    assert!(rig.place.lines("select k from @.t where k > 1").is_empty(), "{test}");
                    continue;
                }
                written.expect("write");
                rig.write(&mut *writer, &[Row::put(2, None, Some(498))])
                    .map_or_else(|error| assert!(key.is_none(), "{error}"), |()| ());
                let two = if key.is_some() { 498 } else { 499 };
                let found = rig.place.lines("select k, n::text from @.t where k > 1 order by k");
                let refused = rejects(&mut rig);
                let plain = |line: &String| line.replace(".00", "");
                let found: Vec<_> = found.iter().map(plain).collect();
                assert_eq!(found, [format!("(2,{two})"), "(3,7)".into()], "{test}: {refused:?}");
            }
        }
    }
}

#[test]
fn a_text_that_the_server_cannot_read_names_its_column() {
    // By the case e07 of the cases from the field.
    for (name, key) in [("unread", None), ("unread_keyed", Some("k"))] {
        let ddl = "create table @.t (k bigint primary key, v inet, n integer)";
        let mut rig = Rig::new(name, ddl, |p| {
            vec![match key {
                None => sink(p, "t"),
                Some(key) => sink(p, "t").key(key),
            }]
        });
        let mut writer = rig.begin();
        let put = |k, v| Row::put(k, Some(v), Some(1));
        let rows = [put(1, "10.0.0.1"), put(2, "nope"), put(3, "10.0.0.3"), put(4, "::x")];
        rig.write(&mut *writer, &rows).expect("the good ones are written");
        assert_eq!(rig.rows(), ["(1,10.0.0.1,1)", "(3,10.0.0.3,1)"]);
        assert_eq!(rejects(&mut rig), ["(1,v,22P02)", "(3,v,22P02)"]);
    }
}

#[test]
fn a_column_that_is_dropped_refuses_the_rows_that_carry_it() {
    // By the case d15 of the cases from the field.
    let ddl = "create table @.t (k bigint primary key, v text, n integer)";
    let mut rig = Rig::new("dropped", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[Row::put(1, Some("a"), Some(1))]).expect("all columns are there");
    let flush = rig.flush(&[&[&[Row::put(1, Some("b"), Some(2)), Row::put(2, None, None)]]]);
    rig.place.execute("alter table @.t drop column n");
    writer.write(flush).expect("the run goes on");
    assert_eq!(rejects(&mut rig), ["(1,n,42703)", "(2,n,42703)"]);
    assert_eq!(rig.place.lines("select * from @.t"), ["(1,a)"]);
}

#[test]
fn keys_meet_by_the_servers_equality_and_one_that_it_does_not_take_is_refused() {
    let ddl = "create table @.t (k numeric(6, 2) primary key, v text, n integer)";
    let mut rig = Rig::new("ranked", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    // The tiny encoder writes bigints. As a numeric, 1 is zero with one digit behind the point and 2
    // zero with two; this one has a sign that there is none of.
    let wrong = 0x1234_0000;
    let rows =
        [Row::put(1, Some("a"), None), Row::put(wrong, None, None), Row::put(2, Some("b"), None)];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.place.lines("select k, v from @.t"), ["(0.00,b)"]);
    assert_eq!(rig.slices(), ["3/1 3 1 1 1"]);
    assert_eq!(rejects(&mut rig), ["(1,k,22P03)"]);
    rig.write(&mut *writer, &[Row::put(2, Some("c"), None), Row::delete(1)]).expect("write");
    assert!(rig.rows().is_empty());
}

#[test]
fn a_policy_that_hides_rows_refuses_them_alone() {
    let ddl = "create table @.t (k bigint, v text, n integer);
               alter table @.t enable row level security;
               alter table @.t force row level security;
               create policy p on @.t using (true) with check (n > 0)";
    let mut rig = Rig::new("policy", ddl, |p| vec![sink(p, "t")]);
    let super_user = "select rolsuper or rolbypassrls from pg_roles where rolname = current_user";
    if rig.place.client.query_one(super_user, &[]).expect("a role").get::<_, bool>(0) {
        return; // no policy holds for such a role
    }
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[Row::put(1, None, Some(0))]).expect("write");
    assert_eq!(rejects(&mut rig), ["(0,,42501)"]);
}

#[test]
fn a_replay_of_several_transactions_counts_each_record_anew() {
    let mut rig = Rig::new("again", CHECKED, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let rows: Vec<Row> = (0..4).map(|k| Row::put(k, None, Some(-1))).collect();
    rig.write(&mut *writer, &rows).expect("all are refused");
    assert_eq!(rig.slices(), ["4/1 4 0 0 0"]);
    rig.place.execute("alter table @.t drop constraint t_n_check");
    for offset in 0..4 {
        let mut flush = rig.flush(&[&[&[Row::put(offset, None, Some(1))]]]);
        let part = &mut flush.sinks[0];
        part.chunks = vec![chunk(&[Row::put(offset, None, Some(1)).offset(offset)])];
        part.spans.clear();
        part.again = vec![(lane(0), Offset(offset))];
        writer.write(flush).expect("it is taken now");
    }
    assert_eq!(rig.rows().len(), 4);
    assert_eq!(rig.slices(), ["4/5 4 4 0 4"]);
    assert!(rejects(&mut rig).is_empty());
}
