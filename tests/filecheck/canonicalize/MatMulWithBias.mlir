// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An Add of a constant row after a MatMul becomes its bias.
// WEIGHT matrix = 1 2 3
// WEIGHT offsets = 1 2 3 4 5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x5xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %matrix = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix")
    %none = "top.None"() : () -> none
    %a = "top.MatMul"(%x, %matrix, %none) {left_transpose = false, right_transpose = false} : (tensor<2x4x6xf32>, tensor<6x5xf32>, none) -> tensor<2x4x5xf32> loc("a")
    %offsets = "top.Weight"() : () -> tensor<5xf32> loc("offsets")
    %y = "top.Add"(%offsets, %a) : (tensor<5xf32>, tensor<2x4x5xf32>) -> tensor<2x4x5xf32> loc("y")
    func.return %y : tensor<2x4x5xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %matrix = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<5xf32> loc("y_bias")
// CHECK-NEXT: %a = "top.MatMul"(%x, %matrix, %0) {left_transpose = false, right_transpose = false{{.*}} -> tensor<2x4x5xf32> loc("y")
// CHECK-NEXT: func.return %a : tensor<2x4x5xf32>
