use super::*;
use proptest::prelude::*;

/// Numbers between -1 and 1 that look random (xorshift).
fn noise(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// X_t = 100 + 1.2 (X_(t-1) - 100) - 0.5 (X_(t-2) - 100) + A_t
fn series(seed: u64, count: usize) -> Vec<f64> {
    let (mut state, mut last, mut before) = (seed * 2 + 1, 0.0, 0.0);
    let mut series = Vec::new();
    for step in 0..count + 100 {
        let next = 1.2 * last - 0.5 * before + 3.0 * noise(&mut state);
        (before, last) = (last, next);
        if step >= 100 {
            series.push(100.0 + next);
        }
    }
    series
}

#[test]
fn square_roots_are_right() {
    for (square, expected) in [(4.0, 2.0), (1e-12, 1e-6), (2e18, 1.414_213_562e9), (0.0, 0.0)] {
        assert!((root(square) - expected).abs() <= 1e-9 * expected, "{square}");
    }
}

#[test]
fn the_weights_of_a_known_process_are_found() {
    let mut predictor = Predictor::new(PredictorConfig {
        order: 2,
        window: PredictorConfig::MOST,
        ..PredictorConfig::default()
    });
    series(7, 1_000).into_iter().for_each(|sample| predictor.add(sample));
    let [first, second] = predictor.weights[..] else { panic!("two weights") };
    assert!((first - 1.2).abs() < 0.08 && (second + 0.5).abs() < 0.08, "{first} {second}");
    assert!((predictor.noise - 3.0 / root(3.0)).abs() < 0.1, "{}", predictor.noise);
}

#[test]
fn it_errs_less_than_the_last_value_and_the_mean_and_the_bound_holds() {
    for horizon in [1, 2, 3, 6] {
        let config = PredictorConfig { order: 2, horizon, ..PredictorConfig::default() };
        let mut predictor = Predictor::new(config);
        let series = series(horizon as u64, 8_000);
        let (mut errors, mut below, mut judged) = ([0.0; 3], 0, 0);
        for (step, sample) in series.iter().enumerate() {
            predictor.add(*sample);
            let (Some(prediction), Some(truth)) = (predictor.predict(), series.get(step + horizon))
            else {
                continue;
            };
            judged += 1;
            below += u32::from(*truth < prediction.lower);
            let guesses = [prediction.value, *sample, predictor.mean().unwrap()];
            for (error, guess) in errors.iter_mut().zip(guesses) {
                *error += (guess - truth) * (guess - truth);
            }
        }
        let missed = f64::from(below) / f64::from(judged);
        assert!((0.03..0.07).contains(&missed), "{horizon} steps: {missed}");
        assert!(errors[0] < errors[1], "{horizon} steps: {errors:?}");
        assert!(errors[0] < errors[2] * 1.03, "{horizon} steps: {errors:?}");
    }
}

#[test]
fn a_constant_is_predicted_as_such() {
    let mut predictor = Predictor::new(PredictorConfig::default());
    for _ in 0..7 {
        predictor.add(5e9);
        assert_eq!(predictor.predict(), None);
    }
    predictor.add(5e9);
    let prediction = predictor.predict().unwrap();
    assert!((prediction.value - 5e9).abs() < 1.0 && (prediction.lower - 5e9).abs() < 1.0);
}

proptest! {
    #[test]
    fn no_series_makes_it_explode(
        samples in prop::collection::vec(prop_oneof![Just(f64::NAN), 0.0..1e11, Just(0.0)], 1..300),
        order in 0usize..20,
        horizon in 0usize..100,
    ) {
        let config = PredictorConfig { order, horizon, ..PredictorConfig::default() };
        let mut predictor = Predictor::new(config);
        for sample in samples {
            predictor.add(sample);
            if let Some(Prediction { value, lower, upper }) = predictor.predict() {
                prop_assert!(value.abs() < 1e12 && lower <= value && value <= upper);
            }
        }
        prop_assert!(predictor.pending.len() <= PredictorConfig::MOST);
    }
}
