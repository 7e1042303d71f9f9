// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// A linear Interp by a whole factor becomes a depthwise Conv.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.Interp"(%x) {target_shape = [12, 12], scale_h = 5.000000e-01 : f64, scale_w = 5.000000e-01 : f64} : (tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> loc("y")
  func.return %y : tensor<1x4x12x12xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Pad"(%x) {paddings = [0 : i64, 0 : i64, 1 : i64, 1 : i64, 0 : i64, 0 : i64, 1 : i64, 1 : i64], mode = "edge", val = 0.000000e+00 : f64}{{.*}} -> tensor<1x4x8x8xf32> loc("x_pad_edge")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4x1x4x4xf32> loc("y_filter")
// CHECK-NEXT: %2 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Conv"(%0, %1, %2) {kernel_shape = [4 : i64, 4 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 4 : i64, {{.*}}, inserts = [1 : i64, 1 : i64]}{{.*}} -> tensor<1x4x12x12xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x12x12xf32>
