//! The sample of MaskBench: schemas from many places, each with valid and invalid instances.

#[path = "sample/order.rs"]
mod order;
mod sample;
#[path = "sample/survey.rs"]
mod survey;

use survey::Survey;

/// Where a schema is supported, no valid instance is refused and no invalid one accepted.
#[test]
fn instances_are_judged_rightly() {
    let Some(cases) = sample::cases() else {
        println!("not run: no data");
        return;
    };
    let Some(tokenizer) = sample::tokenizer() else {
        println!("not run: no data (neither REFRAIN_SMOLLM2 nor REFRAIN_GPT2_VOCAB is set)");
        return;
    };
    let survey = Survey::of(&cases, &tokenizer);
    println!("{} of {} schemas are supported", survey.supported, survey.schemas);
    for (feature, count) in &survey.refused {
        println!("{count} are not: {feature}");
    }
    let (given, ordered) = (survey.valid_as_given, survey.valid_in_order);
    println!("{given} valid instances accepted as they are, {ordered} in the schema's order");
    println!("{} invalid instances refused", survey.invalid_refused);
    let none: [&str; 0] = [];
    assert_eq!(survey.valid_refused, none);
    assert_eq!(survey.invalid_accepted, none);
    assert_eq!(survey.failed, none);
    // So that a change that refuses everything doesn't pass.
    assert!(survey.supported * 100 >= survey.schemas * 94);
}
