// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Two Muls by constants become one by the product of the constants.
// WEIGHT row = 1 2 3 4 5 6
// WEIGHT column = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %a = "top.Mul"(%x, %row) : (tensor<2x4x6xf32>, tensor<1x1x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %column = "top.Weight"() : () -> tensor<1x4x1xf32> loc("column")
    %y = "top.Mul"(%column, %a) : (tensor<1x4x1xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<1x4x6xf32> loc("y_merged")
// CHECK-NEXT: %y = "top.Mul"(%x, %0) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
