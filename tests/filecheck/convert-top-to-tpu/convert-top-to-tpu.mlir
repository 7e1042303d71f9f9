// RUN: tpusim opt -p 'convert-top-to-tpu{chip=bm1684x mode=F16}' %s | filecheck %s
//
// Ops become ops of the chip in the types of the mode; casts are inserted where types differ.
// WEIGHT pointwise = 1 2 3
// WEIGHT bias = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %bias = "top.Weight"() : () -> tensor<4xf32> loc("bias")
    %y = "top.Conv"(%x, %pointwise, %bias) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0], do_relu = true} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "F16"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x6x6xf16> loc("xy_f16")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<4x4x1x1xf16> loc("pointwise")
// CHECK-NEXT: %4 = "top.Weight"() : () -> tensor<4xf32> loc("bias")
// CHECK-NEXT: %5 = "tpu.Conv2D"(%2, %3, %4) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, do_relu = true, relu_limit = -1.000000e+00 : f64, with_bias = true}{{.*}} -> tensor<1x4x6x6xf16> loc("y")
// CHECK-NEXT: %6 = "tpu.Cast"(%5) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %6 : tensor<1x4x6x6xf32>
