// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A computed condition gets the result's rank by a Reshape and its shape by a Tile, both directly after it.

module {
  func.func @main(%in: tensor<2x4x6xf32>, %mask: tensor<4x1xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %m = "top.Input"(%mask) : (tensor<4x1xf32>) -> tensor<4x1xf32> loc("m")
    %g = "top.CompareConst"(%m) {mode = "Greater", const_val = 0.000000e+00 : f64, inversed = false} : (tensor<4x1xf32>) -> tensor<4x1xf32> loc("g")
    %none = "top.None"() : () -> none
    %y = "top.Where"(%g, %x, %none) {y_is_const = true, x_const_val = 0.000000e+00 : f64, y_const_val = 5.000000e-01 : f64} : (tensor<4x1xf32>, tensor<2x4x6xf32>, none) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %g = "top.CompareConst"(%m)
// CHECK-NEXT: %0 = "top.Reshape"(%g) {{.*}} -> tensor<1x4x1xf32> loc("g_ToOutDim")
// CHECK-NEXT: %1 = "top.Tile"(%0) {tile = [2 : i64, 1 : i64, 6 : i64]} : (tensor<1x4x1xf32>) -> tensor<2x4x6xf32> loc("y_Tile")
// CHECK:      %y = "top.Where"(%1, %x, %none)
