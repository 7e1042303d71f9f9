// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F16}' %s | filecheck %s
//
// Begins a lowering for a chip and mode; the module stays as it is, and the passes after it read the options.
// WEIGHT pointwise = 1 2 3
// WEIGHT bias = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %bias = "top.Weight"() : () -> tensor<4xf32> loc("bias")
    %y = "top.Conv"(%x, %pointwise, %bias) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      module.state = "TOP_F32"
// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
// CHECK-NEXT: %bias = "top.Weight"() : () -> tensor<4xf32> loc("bias")
// CHECK-NEXT: %y = "top.Conv"(%x, %pointwise, %bias) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x6x6xf32>
