// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// The relu of an AvgPool becomes a Relu after it.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.AvgPool"(%x) {kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], count_include_pad = false, do_relu = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> loc("y")
  func.return %y : tensor<1x4x3x3xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x6x6xbf16> loc("xy_pool_bf16")
// CHECK-NEXT: %3 = "tpu.Pool2D"(%2) {pool_mode = #tpu<pool_mode Avg>, {{.*}}, kernel_shape = [2 : i64, 2 : i64], strides = [2 : i64, 2 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], count_include_pad = false}{{.*}} -> tensor<1x4x3x3xbf16> loc("y_pool")
// CHECK-NEXT: %4 = "tpu.Relu"(%3) {relu_limit = -1.000000e+00 : f64}{{.*}} -> tensor<1x4x3x3xbf16> loc("y")
// CHECK-NEXT: %5 = "tpu.Cast"(%4) {{.*}} -> tensor<1x4x3x3xf32> loc("y_f32")
// CHECK-NEXT: func.return %5 : tensor<1x4x3x3xf32>
