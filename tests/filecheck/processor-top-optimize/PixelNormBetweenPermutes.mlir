// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// CV18xx normalises channels as the last axis.
// WEIGHT scale = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x3x6xf32>) -> tensor<2x4x3x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x3x6xf32>) -> tensor<2x4x3x6xf32> loc("x")
    %none = "top.None"() : () -> none
    %scale = "top.Weight"() : () -> tensor<1x4x1x1xf32> loc("scale")
    %y = "top.PixelNorm"(%x, %scale, %none) {eps = 9.9999999747524271e-07 : f64} : (tensor<2x4x3x6xf32>, tensor<1x4x1x1xf32>, none) -> tensor<2x4x3x6xf32> loc("y")
    func.return %y : tensor<2x4x3x6xf32>
  }
}

// CHECK:      %y = "top.Weight"() : () -> tensor<4xf32> loc("y_row0")
// CHECK-NEXT: %y_1 = "top.Permute"(%x) {order = [0 : i64, 2 : i64, 3 : i64, 1 : i64]} {{.*}} -> tensor<2x3x6x4xf32> loc("y_permute0")
// CHECK-NEXT: %y_2 = "top.LayerNorm"(%y_1, %y, %none) {axis = 3 : si32, eps = 9.9999999747524271e-07 : f64, normalized_shape = [4 : i64]} {{.*}} -> tensor<2x3x6x4xf32> loc("y_transposed")
// CHECK-NEXT: %y_3 = "top.Permute"(%y_2) {order = [0 : i64, 3 : i64, 1 : i64, 2 : i64], tpusim.framework = "y"} {{.*}} -> tensor<2x4x3x6xf32> loc("y_permute1")
// CHECK-NEXT: func.return %y_3 : tensor<2x4x3x6xf32>
