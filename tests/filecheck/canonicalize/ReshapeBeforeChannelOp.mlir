// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Relu after a Reshape that keeps the channels moves before the Reshape, where it becomes an attribute of the
// Conv.
// WEIGHT pointwise = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x36xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %pointwise, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, none) -> tensor<1x4x6x6xf32> loc("a")
    %b0 = "top.Reshape"(%a) {shape = [1, 4, 36]} : (tensor<1x4x6x6xf32>) -> tensor<1x4x36xf32> loc("b0")
    %y = "top.Relu"(%b0) : (tensor<1x4x36xf32>) -> tensor<1x4x36xf32> loc("y")
    func.return %y : tensor<1x4x36xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %a = "top.Conv"(%x, %pointwise, %none) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, do_relu = true, relu_limit = -1.000000e+00 : f64}{{.*}} -> tensor<1x4x6x6xf32> loc("y_2d")
// CHECK-NEXT: %y = "top.Reshape"(%a) {shape = [1 : i64, 4 : i64, 36 : i64]}{{.*}} -> tensor<1x4x36xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x36xf32>
