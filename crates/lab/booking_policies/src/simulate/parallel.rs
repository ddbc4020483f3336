use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Applies `work` to all `jobs` on some threads; the results are in the order of the jobs.
pub(super) fn map<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    progress: &mut dyn FnMut(usize, usize),
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut results: Vec<(usize, R)> = Vec::with_capacity(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let send = send.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    // The receiver outlives the threads.
                    let _ = send.send((index, work(job)));
                }
            });
        }
        drop(send);
        for result in receive {
            results.push(result);
            progress(results.len(), jobs.len());
        }
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
