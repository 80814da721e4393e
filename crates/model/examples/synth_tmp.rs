fn main() {
    let a: Vec<String> = std::env::args().collect();
    let g = millrace_model::synth::Geometry::named(&a[1]).unwrap();
    let o = millrace_model::synth::SynthOptions { recipe: millrace_model::recipe::Recipe::parse(&a[3]).unwrap(), vocab: None, n_layers: a.get(4).map(|s| s.parse().unwrap()), seed: 1, n_threads: None };
    let t = std::time::Instant::now();
    let w = millrace_model::synth::write(g, a[2].as_ref(), &o, &mut |_, _| {}).unwrap();
    println!("{} {} params {} bytes {:?}", a[1], w.n_params, w.size_bytes, t.elapsed());
    let c = millrace_format::Checkpoint::open(a[2].as_ref()).unwrap();
    let m = millrace_model::Model::from_checkpoint(&c).unwrap();
    println!("nodes {}", m.graph.nodes.len());
}
