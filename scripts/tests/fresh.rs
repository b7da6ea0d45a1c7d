//! Generated files are up to date, and `cargo xtask gen --check` notices those that are not.

use xtask::{generate, model::Spec, repository};

#[test]
fn generated_files_are_fresh() {
    let root = repository();
    let spec = Spec::load(&root.join("spec")).expect("spec/ is consistent");
    let files = generate::all(&spec, &root).expect("the generator runs");
    assert!(files.len() > 10, "only {} files", files.len());
    if let Err(error) = generate::check(&root, &files) {
        panic!("{error}");
    }
    println!("{} generated files are fresh", files.len());
}

#[test]
fn a_changed_file_is_noticed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let files = [generate::File::new("a/b.txt", "text\n".to_owned())];
    assert!(
        generate::check(dir.path(), &files).is_err(),
        "a missing file passed"
    );
    assert_eq!(generate::write(dir.path(), &files).expect("writable"), 1);
    assert_eq!(generate::write(dir.path(), &files).expect("writable"), 0);
    generate::check(dir.path(), &files).expect("just written");
    std::fs::write(dir.path().join("a/b.txt"), "other\n").expect("writable");
    let error = generate::check(dir.path(), &files).expect_err("a changed file passed");
    assert!(error.to_string().contains("a/b.txt"), "{error}");
}
