// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Two Adds of constants become one of the sum of the constants.
// WEIGHT row = 1 2 3 4 5 6

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<6xf32> loc("row")
    %a = "top.Add"(%x, %row) : (tensor<2x4x6xf32>, tensor<6xf32>) -> tensor<2x4x6xf32> loc("a")
    %y = "top.Add"(%a, %row) : (tensor<2x4x6xf32>, tensor<6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<1x1x6xf32> loc("y_merged")
// CHECK-NEXT: %y = "top.Add"(%x, %0) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
