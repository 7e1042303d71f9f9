// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// The relu of an AvgPool becomes a Relu after it.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.AvgPool"(%x) {kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], count_include_pad = false, do_relu = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> loc("y")
  func.return %y : tensor<1x4x3x3xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %y = "top.AvgPool"(%x) {kernel_shape = [2 : i64, 2 : i64], strides = [2 : i64, 2 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], count_include_pad = false{{.*}} -> tensor<1x4x3x3xf32> loc("y_pool")
// CHECK-NEXT: %y_1 = "top.Relu"(%y) {relu_limit = -1.000000e+00 : f64}{{.*}} -> tensor<1x4x3x3xf32> loc("y")
// CHECK-NEXT: func.return %y_1 : tensor<1x4x3x3xf32>
