// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// A Permute that moves axes of length 1 only leaves the elements in order: it is a view. Another one stays.

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f32"} {
  func.func @main(%in: tensor<2x4x1x6xf32>) -> tensor<4x2x1x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x1x6xf32>) -> tensor<2x4x1x6xf32> loc("x")
    %a = "tpu.Permute"(%x) {order = [2, 0, 1, 3]} : (tensor<2x4x1x6xf32>) -> tensor<1x2x4x6xf32> loc("a")
    %b0 = "tpu.Permute"(%a) {order = [2, 1, 0, 3]} : (tensor<1x2x4x6xf32>) -> tensor<4x2x1x6xf32> loc("b0")
    func.return %b0 : tensor<4x2x1x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x1x6xf32>) -> tensor<2x4x1x6xf32> loc("x")
// CHECK-NEXT: %a = "tpu.Reshape"(%x) {shape = [1 : i64, 2 : i64, 4 : i64, 6 : i64]}{{.*}} -> tensor<1x2x4x6xf32> loc("a")
// CHECK-NEXT: %b0 = "tpu.Permute"(%a, %0) {order = [2 : i64, 1 : i64, 0 : i64, 3 : i64]}{{.*}} -> tensor<4x2x1x6xf32> loc("b0")
