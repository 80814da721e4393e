fn main() {
    let a: Vec<String> = std::env::args().collect();
    let c = millrace_format::Checkpoint::open(a[1].as_ref()).unwrap();
    let m = millrace_model::Model::from_checkpoint(&c).unwrap();
    for r in millrace_model::recipe::Recipe::all() {
        for n in m.config.tensors(millrace_model::arch::Layout::Gguf) {
            println!("{} {} {}", r, n.gguf(), r.dtype_for(n, &m.config));
        }
    }
}
