// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A mean over height and width becomes an AvgPool with one window over the image.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x1x1xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.Reduce"(%x) {axes = [2, 3], mode = "ReduceMean", keepdims = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x1x1xf32> loc("y")
  func.return %y : tensor<1x4x1x1xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %y = "top.AvgPool"(%x) {kernel_shape = [6 : i64, 6 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], count_include_pad = false{{.*}} -> tensor<1x4x1x1xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x1x1xf32>
