// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// An Upsample becomes a depthwise Deconv whose filter is ones and whose stride is the factor.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.Upsample"(%x) {scale_h = 2, scale_w = 2} : (tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> loc("y")
  func.return %y : tensor<1x4x12x12xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x6x6xbf16> loc("xy_bf16")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<4x1x2x2xbf16> loc("y_filter")
// CHECK-NEXT: %4 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %5 = "tpu.Deconv"(%2, %3, %4) {kernel_shape = [2 : i64, 2 : i64], strides = [2 : i64, 2 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], output_padding = [0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 4 : i64{{.*}} -> tensor<1x4x12x12xbf16> loc("y")
// CHECK-NEXT: %6 = "tpu.Cast"(%5) {{.*}} -> tensor<1x4x12x12xf32> loc("y_f32")
// CHECK-NEXT: func.return %6 : tensor<1x4x12x12xf32>
