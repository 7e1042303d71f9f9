// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8},processor-top-optimize' %s | filecheck %s
//
// A computed branch gets the result's rank by a Reshape and its shape by a Tile; a constant branch stays.
// WEIGHT row = 1 2 3 4 5 6

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%a: tensor<2x4x6xf32>, %b: tensor<4x1xf32>, %c: tensor<4x6xf32>) -> (tensor<2x4x6xf32>, tensor<2x4x6xf32>) {
    %x = "top.Input"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %s = "top.Input"(%b) : (tensor<4x1xf32>) -> tensor<4x1xf32> loc("s")
    %t = "top.Input"(%c) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("t")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %g = "top.CompareConst"(%x) {mode = "Greater", const_val = 0.0 : f64, inversed = false} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("g")
    %y = "top.Where"(%g, %s, %row) {x_const_val = 0.0 : f64, y_const_val = 0.0 : f64} : (tensor<2x4x6xf32>, tensor<4x1xf32>, tensor<1x1x6xf32>) -> tensor<2x4x6xf32> loc("y")
    %z = "top.Where"(%g, %x, %t) {x_const_val = 0.0 : f64, y_const_val = 0.0 : f64} : (tensor<2x4x6xf32>, tensor<2x4x6xf32>, tensor<4x6xf32>) -> tensor<2x4x6xf32> loc("z")
    func.return %y, %z : tensor<2x4x6xf32>, tensor<2x4x6xf32>
  }
}

// CHECK:      %s = "top.Input"
// CHECK-NEXT: %0 = "top.Reshape"(%s) {{.*}} -> tensor<1x4x1xf32> loc("s_ToOutDim")
// CHECK-NEXT: %1 = "top.Tile"(%0) {tile = [2 : i64, 1 : i64, 6 : i64]} : (tensor<1x4x1xf32>) -> tensor<2x4x6xf32> loc("s_Tile")
// CHECK-NEXT: %t = "top.Input"
// CHECK-NEXT: %2 = "top.Reshape"(%t) {{.*}} -> tensor<1x4x6xf32> loc("t_ToOutDim")
// CHECK-NEXT: %3 = "top.Tile"(%2) {tile = [2 : i64, 1 : i64, 1 : i64]} : (tensor<1x4x6xf32>) -> tensor<2x4x6xf32> loc("t_Tile")
// CHECK:      %y = "top.Where"(%g, %1, %row)
// CHECK-NEXT: %z = "top.Where"(%g, %x, %3)
