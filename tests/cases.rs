//! Cases from the field, as people who do this job meet them: tables, messages, and what must come of
//! them. `cases.json` holds them, and depends on nothing of this program. Each is run on every way to the
//! table, by the dataflow `copy`.

mod common;

mod cases {
    pub mod expand;
    pub mod fake;
    pub mod form;
    pub mod grade;
    pub mod outcome;
    pub mod params;
    pub mod policy;
    pub mod produce;
    pub mod story;
}

/// A test for each case, named by its id.
macro_rules! cases {
    ($($id:ident,)*) => {
        const IDS: &[&str] = &[$(stringify!($id)),*];

        $(
            #[test]
            fn $id() {
                cases::story::run(stringify!($id));
            }
        )*
    };
}

cases! {
    a01_nul_in_text,
    a02_nul_in_jsonb,
    a03_nul_in_key,
    a04_half_surrogates_text,
    a05_half_surrogates_jsonb,
    a07_bytes_that_are_not_utf8,
    a08_key_bytes_as_text,
    b01_numeric_keeps_every_digit,
    b02_bigint_edges,
    b03_beyond_a_double,
    c01_declared_unit,
    c03_odd_instants,
    c04_offsets_and_the_session,
    c05_offset_into_timestamp,
    c06_no_zone_none_declared,
    c07_no_zone_declared_zone,
    d01_jsonb_enum_uuids_append,
    d02_jsonb_enum_uuids_keyed,
    d03_delete_by_uuid,
    d04_delete_by_enum,
    d05_delete_by_wide_numeric,
    d06_delete_by_date,
    d07_delete_by_citext,
    d08_absent_is_not_null,
    d10_partition_missing,
    d11_redirecting_trigger,
    d12_suppressing_trigger,
    d13_odd_names,
    d14_widened_while_running,
    d15_column_dropped,
    d18_good_and_bad_together,
    e01_same_key_many_times,
    e02_keys_equal_by_citext,
    e03_keys_equal_by_padding,
    e04_too_many_parameters_wide,
    e05_too_many_parameters_long,
    e07_refused_only_by_the_server,
    e08_refused_only_at_commit,
    e09_order_within_a_key,
    e10_keys_shifted_by_one,
    g01_undecodable_then_many_good,
    h01_ends_in_a_marker,
    o01_tombstones_keyed,
    o02_tombstones_append,
    o04_headers_as_bytes,
    o05_headers_as_text,
}

#[test]
fn every_case_of_the_file_is_run() {
    let ids: Vec<_> = cases::form::load().into_iter().map(|case| case.id).collect();
    assert_eq!(ids, IDS);
}
