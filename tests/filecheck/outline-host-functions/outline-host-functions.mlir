// RUN: tpusim opt -p 'outline-host-functions' %s | filecheck %s
//
// Adjacent ops that only the host computes become a private function, which is compiled to StableHLO once: the code is a
// constant of its name, which the program has too. A function has one result, so ops with another one are another.

module attributes {module.state = "TPU_DIVIDED", module.chip = "cv183x", module.mode = "bf16"} {
  func.func @main(%in: tensor<1x3x2x4xf32>) -> (tensor<1x6x4xf32>, tensor<1x3x2x4xf32>) {
    %no = "top.None"() : () -> none
    %x = "top.Input"(%in) : (tensor<1x3x2x4xf32>) -> tensor<1x3x2x4xf32> loc("x")
    %rows = "tpu.CumSum"(%x, %no) {axis = 2 : i64, tpusim.exclusive = false, tpusim.reverse = false, tpusim.mode = "sum"} : (tensor<1x3x2x4xf32>, none) -> tensor<1x3x2x4xf32> loc("rows")
    %flat = "tpu.Reshape"(%rows) {shape = [1, 6, 4]} : (tensor<1x3x2x4xf32>) -> tensor<1x6x4xf32> loc("flat")
    %sums = "tpu.CumSum"(%flat, %no) {axis = 1 : i64, tpusim.exclusive = false, tpusim.reverse = false, tpusim.mode = "sum"} : (tensor<1x6x4xf32>, none) -> tensor<1x6x4xf32> loc("sums")
    %left = "tpu.CumSum"(%x, %no) {axis = 3 : i64, tpusim.exclusive = false, tpusim.reverse = false, tpusim.mode = "sum"} : (tensor<1x3x2x4xf32>, none) -> tensor<1x3x2x4xf32> loc("left")
    func.return %sums, %left : tensor<1x6x4xf32>, tensor<1x3x2x4xf32>
  }
}

// CHECK:      func.func @main
// CHECK-NEXT: %x = "top.Input"(%in)
// CHECK-NEXT: "top.Weight"() : () -> tensor<{{[0-9]+}}xui8> loc("host_0")
// CHECK-NEXT: %[[SUMS:.*]] = func.call @host_0(%x) : (tensor<1x3x2x4xf32>) -> tensor<1x6x4xf32>
// CHECK-NEXT: "top.Weight"() : () -> tensor<{{[0-9]+}}xui8> loc("host_1")
// CHECK-NEXT: %[[LEFT:.*]] = func.call @host_1(%x) : (tensor<1x3x2x4xf32>) -> tensor<1x3x2x4xf32>
// CHECK-NEXT: func.return %[[SUMS]], %[[LEFT]]
// CHECK:      func.func private @host_0(%x: tensor<1x3x2x4xf32>{{.*}}) -> tensor<1x6x4xf32> attributes {mode = #tpu<run_mode CPU>}
// CHECK:      %rows = "tpu.CumSum"(%x, {{.*}}axis = 2
// CHECK-NEXT: %flat = "tpu.Reshape"(%rows)
// CHECK-NEXT: %sums = "tpu.CumSum"(%flat, {{.*}}axis = 1
// CHECK-NEXT: func.return %sums
// CHECK:      func.func private @host_1
// CHECK:      %left = "tpu.CumSum"(%x, {{.*}}axis = 3
