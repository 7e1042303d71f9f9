// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A MulConst after a MatMul with constants goes into its weight and bias, also through a Reshape.
// WEIGHT matrix = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x20xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %matrix = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix")
    %none = "top.None"() : () -> none
    %a = "top.MatMul"(%x, %matrix, %none) {left_transpose = false, right_transpose = false} : (tensor<2x4x6xf32>, tensor<6x5xf32>, none) -> tensor<2x4x5xf32> loc("a")
    %b0 = "top.Reshape"(%a) {shape = [2, 20]} : (tensor<2x4x5xf32>) -> tensor<2x20xf32> loc("b0")
    %y = "top.MulConst"(%b0) {const_val = 3.000000e+00 : f64} : (tensor<2x20xf32>) -> tensor<2x20xf32> loc("y")
    func.return %y : tensor<2x20xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<6x5xf32> loc("y_filter")
// CHECK-NEXT: %a = "top.MatMul"(%x, %0, %none) {left_transpose = false, right_transpose = false{{.*}} -> tensor<2x4x5xf32> loc("y_r_MulOrConv")
// CHECK-NEXT: %b0 = "top.Reshape"(%a) {shape = [2 : i64, 20 : i64]}{{.*}} -> tensor<2x20xf32> loc("y")
// CHECK-NEXT: func.return %b0 : tensor<2x20xf32>
