// RUN: tpusim opt -p 'codegen{model_file=%S/example.tpusim}' %s | filecheck %s
//
// The commands of the module are written as a program; the module stays as it is.

module attributes {module.state = "TPU_ADDRESSED", module.chip = "bm1684x", module.mode = "f32", module.coeff_addr = 4294967296 : i64, module.coeff_size = 0 : i64, module.neuron_addr = 4294967296 : i64, module.neuron_size = 8192 : i64} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x6x4xf32, 4294971392> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32, 4294967296> loc("x")
    %y = "tpu.Permute"(%x) {order = [0, 2, 1]} : (tensor<2x4x6xf32, 4294967296>) -> tensor<2x6x4xf32, 4294971392> loc("y")
    func.return %y : tensor<2x6x4xf32, 4294971392>
  }
}

// CHECK:      module.state = "TPU_ADDRESSED", module.chip = "bm1684x", module.mode = "f32"
// CHECK-NEXT: module.coeff_addr = 4294967296 : i64, module.coeff_size = 0 : i64, module.neuron_addr = 4294967296 : i64, module.neuron_size = 8192 : i64
// CHECK:      func.func @main
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32, 4294967296 : i64> loc("x")
// CHECK-NEXT: func.call @subfunc_0(%x) : (tensor<2x4x6xf32, 4294967296 : i64>) -> tensor<2x6x4xf32, 4294971392 : i64>
// CHECK:      func.func @subfunc_0(%x: {{.*}}mode = #tpu<run_mode TPU_STATIC>
// CHECK-NEXT: %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "tpu.Permute"(%x, %0) {order = [0 : i64, 2 : i64, 1 : i64]}{{.*}} -> tensor<2x6x4xf32, 4294971392 : i64> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x6x4xf32, 4294971392 : i64>
