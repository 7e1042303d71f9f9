// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A constant row that multiplies a linear layer goes into its matrix and its bias.
// WEIGHT w = 1 2 3
// WEIGHT b = 1 2
// WEIGHT s = 0.5 0.25

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x8xf32>) -> tensor<1x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
    %w = "top.Weight"() : () -> tensor<8x6xf32> loc("w")
    %b = "top.Weight"() : () -> tensor<6xf32> loc("b")
    %a = "top.MatMul"(%x, %w, %b) : (tensor<1x4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<1x4x6xf32> loc("a")
    %s = "top.Weight"() : () -> tensor<1x1x6xf32> loc("s")
    %y = "top.Mul"(%s, %a) : (tensor<1x1x6xf32>, tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("y")
    func.return %y : tensor<1x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<8x6xf32> loc("y_right")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<6xf32> loc("y_bias")
// CHECK-NEXT: %a = "top.MatMul"(%x, %0, %1) : (tensor<1x4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<1x4x6xf32> loc("y")
// CHECK-NEXT: func.return %a : tensor<1x4x6xf32>
