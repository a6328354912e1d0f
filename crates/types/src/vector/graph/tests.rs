//! Random graphs against what has to hold for every graph, and against a look at every node.

use super::*;
use crate::vector::quantize::Quantization;

impl Graph {
    /// Asserts what the head of the file promises.
    pub(in crate::vector) fn check(&self) {
        let mut bytes = 0;
        for node in 0..self.len() as u32 {
            bytes += self.at(node).heap_bytes();
            for layer in 0..=self.level(node) {
                let mut links = self.links(node, layer).to_vec();
                links.sort_unstable();
                assert!(
                    links.windows(2).all(|pair| pair[0] < pair[1]),
                    "a link twice"
                );
                for end in links {
                    assert_ne!(end, node, "a node is linked with itself");
                    assert!((end as usize) < self.len(), "a link to nothing");
                    assert!(
                        self.level(end) >= layer,
                        "a link to a node of a lower layer"
                    );
                    assert!(self.links(end, layer).contains(&node), "a link one way");
                }
            }
        }
        assert_eq!(self.bytes, bytes);
        for layer in 0..=self.level_max() {
            let mut reached = Visited::new(self.len());
            if !self.nodes.is_empty() {
                self.reach(self.entry, layer, &mut reached);
            }
            for node in 0..self.len() as u32 {
                assert!(self.level(node) <= self.level_max());
                let on_layer = self.level(node) >= layer;
                assert_eq!(reached.contains(node), on_layer, "{node} on {layer}");
            }
        }
    }
}

fn random_vector(rng: &mut fastrand::Rng, dimensions: usize) -> Vec<f32> {
    (0..dimensions).map(|_| rng.f32() * 2.0 - 1.0).collect()
}

fn graph_of(
    rng: &mut fastrand::Rng,
    count: usize,
    dimensions: usize,
    m: usize,
    quantization: Quantization,
) -> Graph {
    let mut graph = Graph::new(dimensions, m);
    for _ in 0..count {
        let vector = Stored::new(&random_vector(rng, dimensions), quantization);
        graph.insert(vector, 40, &mut || rng.u64(..));
    }
    graph
}

#[test]
fn it_holds_through_insertions_and_removals() {
    for (seed, m, quantization) in [
        (1, 4, Quantization::None),
        (2, 4, Quantization::Binary),
        (3, 5, Quantization::Int8),
        (4, 16, Quantization::Int8),
    ] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut graph = Graph::new(6, m);
        for step in 0..900 {
            let growing = step % 300 < 180;
            if graph.is_empty() || rng.u8(..10) < if growing { 8 } else { 2 } {
                // Few directions: many distances are equal.
                let vector: Vec<f32> = (0..6).map(|_| f32::from(rng.i8(-1..=1))).collect();
                let ef = rng.usize(1..50);
                graph.insert(Stored::new(&vector, quantization), ef, &mut || rng.u64(..));
            } else {
                graph.remove(rng.u32(..graph.len() as u32));
            }
            if step % 10 == 0 {
                graph.check();
                let query = Stored::new(&random_vector(&mut rng, 6), quantization);
                let nearest = graph.nearest(&query, graph.len(), None);
                assert_eq!(nearest, graph.nearest_of_all(&query, graph.len(), |_| true));
                assert_eq!(nearest.len(), graph.len());
            }
        }
        while !graph.is_empty() {
            graph.remove(rng.u32(..graph.len() as u32));
            graph.check();
        }
    }
}

#[test]
fn a_new_node_has_no_more_than_m_links_on_a_layer() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut graph = Graph::new(10, 8);
    for node in 0..500 {
        let vector = Stored::new(&random_vector(&mut rng, 10), Quantization::Int8);
        graph.insert(vector, 200, &mut || rng.u64(..));
        for layer in 0..=graph.level(node) {
            let links = graph.links(node, layer).len();
            assert!(links <= 8, "{links} links on layer {layer}");
        }
    }
    let most = (0..500).map(|node| graph.links(node, 0).len()).max();
    assert_eq!(most, Some(16), "later nodes add links");
}

/// Returns the share of the ten nearest that a search finds, of 10,000 vectors.
fn recall(graph: &Graph, rng: &mut fastrand::Rng, quantization: Quantization, ef: usize) -> f64 {
    let (queries, wanted) = (50, 10);
    let mut found = 0;
    for _ in 0..queries {
        let query = Stored::new(&random_vector(rng, graph.dimensions()), quantization);
        let truth = graph.nearest_of_all(&query, wanted, |_| true);
        let nearest = graph.nearest(&query, ef, None);
        found += truth
            .iter()
            .filter(|near| nearest[..wanted].contains(near))
            .count();
    }
    found as f64 / (queries * wanted) as f64
}

#[test]
fn most_of_the_nearest_are_found_and_still_after_removals() {
    let quantization = Quantization::Int8;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut graph = graph_of(&mut rng, 10_000, 64, 16, quantization);
    let before = recall(&graph, &mut rng, quantization, 200);
    for _ in 0..1_000 {
        graph.remove(rng.u32(..graph.len() as u32));
    }
    graph.check();
    let after = recall(&graph, &mut rng, quantization, 200);
    println!("recall {before}, after removals {after}");
    assert!(before > 0.95, "{before}");
    assert!(after > 0.95, "{after}");
}

#[test]
fn a_filter_admits_and_an_effort_ends() {
    let mut rng = fastrand::Rng::with_seed(3);
    let graph = graph_of(&mut rng, 500, 8, 8, Quantization::None);
    let query = Stored::new(&random_vector(&mut rng, 8), Quantization::None);
    let mut admits = |node: u32| node.is_multiple_of(7);
    let accept = Accept {
        admits: &mut admits,
        effort: usize::MAX,
    };
    let found = graph.nearest(&query, 500, Some(accept));
    assert_eq!(
        found,
        graph.nearest_of_all(&query, 500, |node| node.is_multiple_of(7))
    );
    let mut asked = 0;
    let accept = Accept {
        admits: &mut |_| {
            asked += 1;
            false
        },
        effort: 3,
    };
    assert!(graph.nearest(&query, 10, Some(accept)).is_empty());
    assert!(asked <= 1 + 3 * graph.links_max(0), "{asked}");
}

#[test]
fn foreign_graphs_are_checked_and_connected() {
    let vectors: Vec<Stored> = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        .iter()
        .map(|vector| Stored::new(vector, Quantization::None))
        .collect();
    let of = |links: [&[&[u32]]; 4]| {
        let layers = links.map(|layers| layers.iter().map(|links| links.to_vec()).collect());
        Graph::of_nodes(2, 4, vectors.clone().into_iter().zip(layers))
    };
    let two_pairs = of([&[&[1], &[]], &[&[0]], &[&[3], &[]], &[&[2]]]).unwrap();
    two_pairs.check();
    assert_eq!(two_pairs.level_max(), 1);
    for damaged in [
        of([&[&[1]], &[&[]], &[&[3]], &[&[2]]]),
        of([&[&[1, 1]], &[&[0, 0]], &[&[3]], &[&[2]]]),
        of([&[&[0]], &[&[]], &[&[3]], &[&[2]]]),
        of([&[&[4]], &[&[]], &[&[3]], &[&[2]]]),
        of([&[&[1], &[1]], &[&[0]], &[&[3]], &[&[2]]]),
        of([&[], &[&[]], &[&[3]], &[&[2]]]),
    ] {
        assert!(damaged.is_none());
    }
}
