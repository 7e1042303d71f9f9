// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8},processor-top-optimize' %s | filecheck %s
//
// Wheres of one shape read the same Tile; that of another shape has another name.

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%a: tensor<4x6xf32>, %b: tensor<4x1xf32>, %c: tensor<8x4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<8x4x6xf32>) {
    %x = "top.Input"(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("x")
    %s = "top.Input"(%b) : (tensor<4x1xf32>) -> tensor<4x1xf32> loc("s")
    %t = "top.Input"(%c) : (tensor<8x4x6xf32>) -> tensor<8x4x6xf32> loc("t")
    %y = "top.Where"(%x, %s, %s) {x_const_val = 0.0 : f64, y_const_val = 0.0 : f64} : (tensor<4x6xf32>, tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x6xf32> loc("y")
    %z = "top.Where"(%x, %x, %s) {x_const_val = 0.0 : f64, y_const_val = 0.0 : f64} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32> loc("z")
    %u = "top.Where"(%t, %t, %s) {x_const_val = 0.0 : f64, y_const_val = 0.0 : f64} : (tensor<8x4x6xf32>, tensor<8x4x6xf32>, tensor<4x1xf32>) -> tensor<8x4x6xf32> loc("u")
    func.return %y, %z, %u : tensor<4x6xf32>, tensor<4x6xf32>, tensor<8x4x6xf32>
  }
}

// CHECK-DAG: [[one:%[0-9]+]] = "top.Tile"(%s) {{.*}} -> tensor<4x6xf32> loc("s_Tile")
// CHECK-DAG: {{%[0-9]+}} = "top.Tile"({{.*}} -> tensor<8x4x6xf32> loc("s_Tile_1")
// CHECK:     "top.Where"(%x, [[one]], [[one]])
// CHECK:     "top.Where"(%x, %x, [[one]])
