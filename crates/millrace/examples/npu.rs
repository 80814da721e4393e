//! The same model on an NPU. Where there is none, it is simulated, with modelled times.
//!
//! `cargo run -p millrace-llm --example npu`

use millrace::{Device, Model, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, title) in Device::names() {
        println!("{name}: {title}");
    }
    let model = Model::open("demo")?;
    let options = Options::greedy().max_tokens(8);
    let on_cpu = model
        .on("cpu")?
        .generate_with("Once upon a time", &options)?;

    let device = Device::named("xdna2").mode("best").context(256);
    let npu = model.on(device)?;
    let on_npu = npu.generate_with("Once upon a time", &options)?;
    println!("{}: {on_npu}", npu.device_name());

    // The time on the device, from the engine.
    let (device_ns, provenance) =
        npu.with_engine(|engine| (engine.counters().device_ns, engine.device_time()));
    let provenance = provenance.ok_or("times of a device were expected")?;
    println!(
        "{:.2} ms on the device, {provenance}",
        device_ns as f64 / 1e6
    );
    if on_npu.text != on_cpu.text {
        return Err(format!("the CPU writes {:?}", on_cpu.text).into());
    }
    Ok(())
}
