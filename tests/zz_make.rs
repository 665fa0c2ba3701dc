mod common;
#[test]
fn make() {
    let n: u64 = std::env::var("N").unwrap().parse().unwrap();
    let t = common::topic("scratch", 8);
    common::produce(&t, (0..n).map(|i| common::Order::event(i).message(8)));
    let mut c = common::connect();
    let s = common::schema(&mut c, "scratch");
    println!("TOPIC {t} SCHEMA {s}");
}
