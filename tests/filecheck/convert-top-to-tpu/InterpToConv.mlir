// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// A linear Interp by a whole factor becomes a depthwise Conv.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.Interp"(%x) {target_shape = [12, 12], scale_h = 5.000000e-01 : f64, scale_w = 5.000000e-01 : f64} : (tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> loc("y")
  func.return %y : tensor<1x4x12x12xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x6x6xbf16> loc("xx_pad_edge_bf16")
// CHECK-NEXT: %3 = "tpu.Pad"(%2) {paddings = [0 : i64, 0 : i64, 1 : i64, 1 : i64, 0 : i64, 0 : i64, 1 : i64, 1 : i64], mode = "edge", val = 0.000000e+00 : f64}{{.*}} -> tensor<1x4x8x8xbf16> loc("x_pad_edge")
// CHECK-NEXT: %4 = "top.Weight"() : () -> tensor<4x1x4x4xbf16> loc("y_filter")
// CHECK-NEXT: %5 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %6 = "tpu.Conv2D"(%3, %4, %5) {kernel_shape = [4 : i64, 4 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], inserts = [1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], group = 4 : i64{{.*}} -> tensor<1x4x12x12xbf16> loc("y")
// CHECK-NEXT: %7 = "tpu.Cast"(%6) {{.*}} -> tensor<1x4x12x12xf32> loc("y_f32")
// CHECK-NEXT: func.return %7 : tensor<1x4x12x12xf32>
