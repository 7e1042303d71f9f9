// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// The padding of rows of a Conv2D over the image becomes a Pad.
// WEIGHT w3_int8 = 1 2 3

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684", module.mode = "int8", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x3x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf32> loc("x")
    %xy_si8 = "tpu.Cast"(%x) : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("xy_si8")
    %w3_int8 = "top.Weight"() : () -> tensor<4x3x3x3xi8> loc("w3_int8")
    %none = "top.None"() : () -> none
    %y = "tpu.Conv2D"(%xy_si8, %w3_int8, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1, relu_limit = -1.000000e+00 : f64, multiplier = [1], rshift = [5], quant_mode = #tpu<rq_mode OnlyShift>} : (tensor<1x3x6x6x!quant.uniform<i8:f32, 0.015748031496062992>>, tensor<4x3x3x3xi8>, none) -> tensor<1x4x6x6x!quant.uniform<u8:f32, 0.00784313725490196>> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<1x4x6x6x!quant.uniform<u8:f32, 0.00784313725490196>>) -> tensor<1x4x6x6xf32> loc("y_f32")
    func.return %y_f32 : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf32> loc("x")
// CHECK-NEXT: %xy_si8 = "tpu.Cast"(%x) {{.*}} -> tensor<1x3x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("xy_si8")
// CHECK-NEXT: %w3_int8 = "top.Weight"() : () -> tensor<4x3x3x3xi8> loc("w3_int8")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %1 = "tpu.Pad"(%xy_si8, %0, %0, %0) {paddings = [0 : i64, 0 : i64, 1 : i64, 0 : i64, 0 : i64, 0 : i64, 1 : i64, 0 : i64], mode = #tpu<Pad_Mode constant>, val = 0.000000e+00 : f64}{{.*}} -> tensor<1x3x8x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("y_pad")
// CHECK-NEXT: %y = "tpu.Conv2D"(%1, %w3_int8, %none) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 1 : i64, 0 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, {{.*}}, multiplier = [1 : i64], rshift = [5 : i64], quant_mode = #tpu<rq_mode OnlyShift>, with_bias = false, tpusim.rows_in_channels = true}{{.*}} -> tensor<1x4x6x6x!quant.uniform<u8:f32, 0.00784313725490196>> loc("y")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32 : tensor<1x4x6x6xf32>
