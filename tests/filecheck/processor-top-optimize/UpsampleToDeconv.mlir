// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// An Upsample becomes a depthwise Deconv whose filter is ones and whose stride is the factor.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.Upsample"(%x) {scale_h = 2, scale_w = 2} : (tensor<1x4x6x6xf32>) -> tensor<1x4x12x12xf32> loc("y")
  func.return %y : tensor<1x4x12x12xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4x1x2x2xf32> loc("y_filter")
// CHECK-NEXT: %1 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Deconv"(%x, %0, %1) {kernel_shape = [2 : i64, 2 : i64], strides = [2 : i64, 2 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], output_padding = [0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 4 : i64{{.*}} -> tensor<1x4x12x12xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x12x12xf32>
